from __future__ import annotations

import numpy as np

from limbeck.stores.ragged import Ragged, spans

PARTS = [np.full((length, 2), length, dtype=np.float32) for length in (2, 0, 3, 1)]


def test_parts_go_in_and_come_out() -> None:
    ragged = Ragged.from_list(PARTS)
    assert len(ragged) == 4
    assert ragged.offsets.tolist() == [0, 2, 2, 5, 6]
    for part, given in zip(ragged, PARTS, strict=True):
        np.testing.assert_array_equal(part, given)


def test_texts_are_taken_in_the_order_asked_for() -> None:
    taken = Ragged.from_list(PARTS).take(np.array([3, 1, 0, 3]))
    assert taken.lengths.tolist() == [1, 0, 2, 1]
    assert taken.vectors[:, 0].tolist() == [1, 2, 2, 1]


def test_padding_is_zero_and_masked() -> None:
    padded, mask = Ragged.from_list(PARTS).padded()
    assert padded.shape == (4, 3, 2)
    assert mask.tolist() == [[True, True, False], [False] * 3, [True] * 3, [True, False, False]]
    assert padded[0].tolist() == [[2, 2], [2, 2], [0, 0]]


def test_nothing_is_ragged_too() -> None:
    empty = Ragged.from_list([])
    assert len(empty) == 0
    assert list(empty) == []


def test_spans_are_the_ranges_one_after_the_other() -> None:
    assert spans(np.array([7, 0, 3]), np.array([2, 0, 3])).tolist() == [7, 8, 3, 4, 5]
