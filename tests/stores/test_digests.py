from __future__ import annotations

import hashlib

import numpy as np

from limbeck.stores.digests import (
    digests_in_row_order,
    find,
    first_occurrences,
    locate,
    pair_digests,
    sorted_index,
    text_digests,
)


def test_a_text_digest_is_blake2b_of_its_utf8() -> None:
    digests = text_digests(["", "ä", "ä"])
    assert digests.shape == (3, 16)
    assert digests[1].tobytes() == hashlib.blake2b("ä".encode(), digest_size=16).digest()
    assert (digests[1] == digests[2]).all()
    assert (digests[0] != digests[1]).any()


def test_a_text_with_a_lone_surrogate_has_a_different_digest() -> None:
    digests = text_digests(["\ud800", "\ud801", "?"])
    assert len(first_occurrences(digests)) == 3


def test_no_texts_have_no_digests() -> None:
    assert text_digests([]).shape == (0, 16)
    assert find(sorted_index(text_digests(["a"])), text_digests([])).shape == (0,)
    assert find(sorted_index(text_digests([])), text_digests(["a"])).tolist() == [-1]
    assert first_occurrences(text_digests([])).tolist() == []


def test_pairs_are_distinguished_by_where_the_query_ends() -> None:
    pairs = [("ab", "c"), ("a", "bc"), ("abc", ""), ("ab", "c"), ("c", "ab")]
    digests = pair_digests([query for query, _ in pairs], [document for _, document in pairs])
    assert first_occurrences(digests).tolist() == [0, 1, 2, 4]
    alone = pair_digests(["c"], ["ab"])
    assert (digests[4] == alone[0]).all()


def test_what_is_in_the_index_is_found_and_nothing_else() -> None:
    rng = np.random.default_rng(0)
    texts = [f"text {number}" for number in rng.permutation(5000)]
    index = sorted_index(text_digests(texts))
    asked = [f"text {number}" for number in rng.integers(0, 10000, 3000)]
    row_of = {text: row for row, text in enumerate(texts)}
    assert find(index, text_digests(asked)).tolist() == [row_of.get(text, -1) for text in asked]
    np.testing.assert_array_equal(digests_in_row_order(index), text_digests(texts))


def test_what_is_in_one_of_several_indexes_is_found_there() -> None:
    texts = [f"text {number}" for number in range(100)]
    indexes = [sorted_index(text_digests(part)) for part in (texts[:60], [], texts[60:])]
    owners, rows = locate(indexes, text_digests([texts[99], "no text", texts[3], texts[60]]))
    assert owners.tolist() == [2, -1, 0, 2]
    assert rows.tolist() == [39, -1, 3, 0]
    assert [part.tolist() for part in locate([], text_digests(["a"]))] == [[-1], [-1]]


def test_digests_that_share_their_first_half_are_distinguished() -> None:
    rng = np.random.default_rng(0)
    digests = rng.integers(0, 256, (40, 16), dtype=np.uint8)
    digests[:, :7], digests[:, 7] = 255, rng.integers(254, 256, 40)  # two first halves, the larger of them the largest
    index = sorted_index(digests[:30])
    assert find(index, digests).tolist() == [*range(30), *[-1] * 10]


def test_the_first_of_equal_digests_is_kept_in_the_order_given() -> None:
    assert first_occurrences(text_digests(["b", "a", "b", "c", "a", "a"])).tolist() == [0, 1, 3]
