"""Weighted measures are scikit-learn's and scipy's on the rows drawn, row by row."""

from __future__ import annotations

import numpy as np
import pytest

from limbeck.evaluation.pairs import evaluate_pairs, scored_pairs
from limbeck.evaluation.resampled import resampled_measure


def drawn_again(name: str, scores: np.ndarray, labels: np.ndarray, counts: np.ndarray) -> float:
    rows = np.repeat(np.arange(len(labels)), counts)
    return evaluate_pairs(scores[rows], labels[rows], [name])[name]


@pytest.mark.parametrize("rounded", [False, True])
@pytest.mark.parametrize(
    ("kind", "name"),
    [
        *(("binary", name) for name in ("auc", "ap", "accuracy", "f1", "pearson", "spearman")),
        *(("classes", name) for name in ("auc", "ap", "accuracy", "f1")),
        *(("graded", name) for name in ("pearson", "spearman")),
    ],
)
def test_each_resample_has_the_value_of_the_rows_drawn(kind: str, name: str, rounded: bool) -> None:
    rng = np.random.default_rng(0)
    n = 40
    labels = {"binary": rng.integers(0, 2, n), "classes": rng.integers(0, 3, n), "graded": rng.normal(size=n) + 5}[kind]
    scores = rng.normal(size=(n, 3)) if kind == "classes" else rng.normal(size=n) + labels
    scores = np.round(scores) if rounded else scores  # with many equal scores, and without any
    weights = rng.multinomial(n, np.full(n, 1 / n), size=25)
    found = resampled_measure(name, scored_pairs(scores, labels), weights.astype(float))
    expected = [drawn_again(name, scores, labels, counts) for counts in weights]
    np.testing.assert_allclose(found, expected, atol=1e-10)


def test_a_class_that_a_resample_neither_has_nor_predicts_is_left_out_of_macro_f1() -> None:
    scores, labels = np.eye(3)[[0, 0, 1, 2]], np.array([0, 1, 1, 2])
    counts = np.array([2, 1, 1, 0])
    found = resampled_measure("f1", scored_pairs(scores, labels), counts[None].astype(float))
    assert found[0] == pytest.approx((4 / 5 + 2 / 3) / 2)
    assert found[0] == pytest.approx(drawn_again("f1", scores, labels, counts))


@pytest.mark.parametrize("name", ["auc", "ap", "pearson", "spearman"])
def test_a_resample_without_positives_or_without_variety_is_nan(name: str) -> None:
    task = scored_pairs([0.3, 0.1, 0.7], [0, 0, 1])
    found = resampled_measure(name, task, np.array([[2.0, 1.0, 0.0], [1.0, 1.0, 1.0]]))
    assert np.isnan(found[0])
    assert np.isfinite(found[1])
