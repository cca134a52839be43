from __future__ import annotations

import numpy as np
import pytest
import torch

from limbeck.errors import LimbeckError
from limbeck.search import exact
from limbeck.search.exact import exact_search
from limbeck.search.topk import best, keys, unpack


def test_the_best_are_those_of_a_stable_sort_with_ties_and_negative_zero() -> None:
    scores = torch.randn(20, 500, generator=torch.Generator().manual_seed(0)).round(decimals=1)
    scores[:, 3], scores[:, 4] = -0.0, 0.0
    values, rows = unpack(best(keys(scores), 400))
    expected = torch.sort(scores, dim=1, descending=True, stable=True)
    assert torch.equal(values, expected.values[:, :400])
    assert torch.equal(rows, expected.indices[:, :400])


def test_keys_bring_back_every_score_and_row() -> None:
    extremes = torch.tensor([0.0, 1e-38, -1e-38, 3e38, -3e38, float("inf"), -float("inf"), 1.5])
    scores, rows = unpack(keys(extremes, first_row=2**31))
    assert torch.equal(scores, extremes)
    assert rows.tolist() == list(range(2**31, 2**31 + 8))


@pytest.mark.parametrize("size", [1, 7, 64, 1000])
@pytest.mark.parametrize("budget", [1, 100, 2**22])
def test_search_in_blocks_is_search_at_once(size: int, budget: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exact, "_SCORES", budget)
    rng = np.random.default_rng(0)
    queries = rng.integers(-2, 3, size=(9, 4)).astype(np.float32)  # small integers: many exact ties
    documents = rng.integers(-2, 3, size=(200, 4)).astype(np.float32)
    blocks = [documents[start : start + size] for start in range(0, 200, size)]
    scores, rows = exact_search(queries, blocks, 30)
    products = queries @ documents.T
    order = np.argsort(-products, axis=1, kind="stable")[:, :30]
    np.testing.assert_array_equal(rows, order)
    np.testing.assert_array_equal(scores, np.take_along_axis(products, order, axis=1))


def test_fewer_documents_than_asked_for_are_all_returned() -> None:
    _, rows = exact_search(np.ones((2, 3), np.float32), [np.ones((4, 3), np.float32)], 10)
    assert rows.tolist() == [[0, 1, 2, 3]] * 2
    assert exact_search(np.ones((2, 3), np.float32), [], 10)[1].shape == (2, 0)


def test_a_vector_that_is_not_finite_is_named() -> None:
    good, bad = np.ones((2, 3), np.float32), np.array([[1, 1, 1], [1, np.nan, 1]], np.float32)
    with pytest.raises(LimbeckError, match="vector of document 4 is not finite"):
        exact_search(good, [good, bad], 1)
    with pytest.raises(LimbeckError, match="vector of query 2 is not finite"):
        exact_search(bad, [good], 1)
