"""Fusion is Eq. 7 to the letter: worked by hand, and against a loop over documents."""

from __future__ import annotations

import math

import numpy as np
import pytest

from limbeck.errors import LimbeckError
from limbeck.search.hybrid import fuse, reciprocal_rank_fusion

Scores = dict[int, float]


def listed(scores: Scores) -> tuple[np.ndarray, np.ndarray]:
    rows = sorted(scores, key=lambda row: (-scores[row], row))
    return np.array(rows, dtype=np.int64), np.array([scores[row] for row in rows], dtype=np.float32)


def by_loop(dense: Scores, sparse: Scores, alpha: float) -> list[tuple[int, float]]:
    fused = {}
    for row in {*dense, *sparse}:
        left = dense[row] if row in dense else min(dense.values(), default=0.0)
        right = sparse[row] if row in sparse else min(sparse.values(), default=0.0)
        fused[row] = alpha * right + left
    return sorted(fused.items(), key=lambda item: (-item[1], item[0]))


def random_list(random: np.random.Generator, documents: int, length: int) -> Scores:
    rows = random.choice(documents, size=length, replace=False)
    scores = random.integers(-8, 24, size=length) / 4  # many of them equal
    return dict(zip(rows.tolist(), scores.tolist(), strict=True))


def test_a_missing_document_takes_the_minimum_of_the_list_that_lacks_it() -> None:
    dense = {7: 0.75, 3: 0.5, 9: 0.25}
    sparse = {3: 12.0, 5: 10.0, 8: 4.0}
    fused = fuse(listed(dense), listed(sparse), alpha=0.125, k=10)
    # 3: 0.125 * 12 + 0.5; 5: 0.125 * 10 + 0.25; 7: 0.125 * 4 + 0.75; 8 and 9: 0.125 * 4 + 0.25, the smaller row first
    assert fused.rows.tolist() == [3, 5, 7, 8, 9]
    assert fused.scores.tolist() == [2.0, 1.5, 1.25, 0.75, 0.75]
    assert np.array_equal(
        fused.dense, np.array([0.5, math.nan, 0.75, math.nan, 0.25], dtype=np.float32), equal_nan=True
    )
    assert np.array_equal(fused.sparse, np.array([12, 10, math.nan, 4, math.nan], dtype=np.float32), equal_nan=True)


@pytest.mark.parametrize("seed", range(40))
def test_it_is_what_a_loop_over_documents_computes(seed: int) -> None:
    random = np.random.default_rng(seed)
    documents = int(random.integers(1, 60))
    dense, sparse = (random_list(random, documents, int(random.integers(0, documents + 1))) for _ in range(2))
    alpha, k = float(random.choice([0.0, 0.1, 0.25, 1.0, 3.0])), int(random.integers(1, 70))
    expected = by_loop(dense, sparse, alpha)[:k]
    fused = fuse(listed(dense), listed(sparse), alpha, k)
    assert list(zip(fused.rows.tolist(), fused.scores.tolist(), strict=True)) == expected
    for part, scores in ((fused.dense, dense), (fused.sparse, sparse)):
        own = [scores.get(row, math.nan) for row in fused.rows.tolist()]
        assert np.array_equal(part, np.array(own, dtype=np.float32), equal_nan=True)


@pytest.mark.parametrize("seed", range(20))
def test_reciprocal_ranks_are_summed_over_the_lists_that_have_the_document(seed: int) -> None:
    random = np.random.default_rng(seed)
    dense, sparse = (listed(random_list(random, 50, int(random.integers(0, 51)))) for _ in range(2))
    expected: Scores = {}
    for rows, _ in (dense, sparse):
        for rank, row in enumerate(rows.tolist(), start=1):
            expected[row] = expected.get(row, 0.0) + 1 / (60 + rank)
    fused = reciprocal_rank_fusion(dense, sparse, k=30)
    order = sorted(expected, key=lambda row: (-expected[row], row))[:30]
    assert fused.rows.tolist() == order
    np.testing.assert_allclose(fused.scores, [expected[row] for row in order], rtol=1e-15)


def test_reciprocal_rank_fusion_by_hand() -> None:
    fused = reciprocal_rank_fusion(listed({4: 0.9, 2: 0.8}), listed({2: 30.0, 6: 20.0}), k=3, constant=1)
    assert fused.rows.tolist() == [2, 4, 6]
    np.testing.assert_allclose(fused.scores, [1 / 3 + 1 / 2, 1 / 2, 1 / 3])
    assert fused.dense[0] == np.float32(0.8) and fused.sparse[0] == 30.0
    assert math.isnan(fused.sparse[1]) and math.isnan(fused.dense[2])


def test_without_words_in_common_the_hybrid_is_the_dense_list() -> None:
    dense = listed({5: -3.0, 1: -4.0})
    fused = fuse(dense, listed({}), alpha=0.5, k=10)
    assert fused.rows.tolist() == [5, 1] and fused.scores.tolist() == [-3.0, -4.0]
    assert np.isnan(fused.sparse).all()
    assert fuse(listed({}), dense, alpha=0.5, k=10).scores.tolist() == [-1.5, -2.0]
    assert len(fuse(listed({}), listed({}), alpha=0.5, k=10).rows) == 0
    assert len(reciprocal_rank_fusion(listed({}), listed({}), k=10).rows) == 0


def test_alpha_zero_keeps_the_dense_order_of_the_dense_list() -> None:
    fused = fuse(listed({5: 3.0, 1: 2.0, 2: 1.0}), listed({9: 30.0, 2: 20.0}), alpha=0.0, k=10)
    assert fused.rows.tolist() == [5, 1, 2, 9]


@pytest.mark.parametrize("alpha", [math.nan, math.inf, -0.1])
def test_an_alpha_that_is_not_a_weight_is_refused(alpha: float) -> None:
    with pytest.raises(LimbeckError, match=f"alpha is {alpha}; it is the weight of the sparse scores"):
        fuse(listed({1: 1.0}), listed({2: 1.0}), alpha, k=1)


def test_k_has_to_be_one_or_more() -> None:
    with pytest.raises(LimbeckError, match="k is 0"):
        fuse(listed({1: 1.0}), listed({2: 1.0}), 0.1, k=0)
