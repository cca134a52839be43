"""Pair measures on many bootstrap resamples at once.

A resample is a row of weights: how often each pair was drawn. Every measure of `pairs` is a ratio of weighted sums;
if it depends on ranks, over pairs sorted by score. So a block of resamples takes a few matrix operations.
A resample on which a measure is undefined gives NaN.
"""

from __future__ import annotations

import numpy as np

from limbeck.evaluation.pairs import ScoredPairs, one_against_rest, predictions


def resampled_measure(name: str, task: ScoredPairs, weights: np.ndarray) -> np.ndarray:
    """The measure on each resample: weights [samples, n] -> [samples]."""
    with np.errstate(invalid="ignore", divide="ignore"):
        if name in ("auc", "ap"):
            function = _auc if name == "auc" else _average_precision
            return np.mean([function(scores, positive, weights) for scores, positive in one_against_rest(task)], axis=0)
        if name == "accuracy":
            return weights @ (predictions(task) == task.labels) / weights.sum(axis=1)
        if name == "f1":
            return _f1(task, weights)
        if name == "pearson":
            return _correlation(task.scores[None], task.labels[None], weights)
        return _correlation(_ranks(task.scores, weights), _ranks(task.labels, weights), weights)


def _f1(task: ScoredPairs, weights: np.ndarray) -> np.ndarray:
    """2 tp / (2 tp + fp + fn), of class 1 or averaged over the classes present or predicted in the resample."""
    guess = predictions(task)
    classes = [1] if task.kind == "binary" else range(task.scores.shape[1])
    hits = np.stack([weights @ ((guess == c) & (task.labels == c)) for c in classes])  # [classes, samples]
    sizes = np.stack([weights @ ((guess == c) * 1.0 + (task.labels == c)) for c in classes])
    values = np.divide(2 * hits, sizes, out=np.zeros_like(hits), where=sizes > 0)
    if task.kind == "binary":
        return values[0]
    return values.sum(axis=0) / (sizes > 0).sum(axis=0)


def _auc(scores: np.ndarray, positive: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """The share of (positive, negative) pairs in the right order; equal scores count half."""
    order, starts = _groups(scores)
    ups = np.add.reduceat(weights[:, order] * positive[order], starts, axis=1)  # [samples, distinct scores]
    downs = np.add.reduceat(weights[:, order] * ~positive[order], starts, axis=1)
    below = np.cumsum(downs, axis=1) - downs / 2
    return (ups * below).sum(axis=1) / (ups.sum(axis=1) * downs.sum(axis=1))


def _average_precision(scores: np.ndarray, positive: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Precision at each distinct score, best first, weighted by the gain in recall there."""
    order, starts = _groups(-scores)
    ups = np.add.reduceat(weights[:, order] * positive[order], starts, axis=1)
    sizes = np.add.reduceat(weights[:, order], starts, axis=1)
    seen = np.cumsum(sizes, axis=1)
    precision = np.divide(np.cumsum(ups, axis=1), seen, out=np.zeros_like(seen), where=seen > 0)
    return (ups * precision).sum(axis=1) / ups.sum(axis=1)


def _correlation(left: np.ndarray, right: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Pearson's r of values [1 or samples, n]."""
    left, left_spread = _centred(left, weights)
    right, right_spread = _centred(right, weights)
    return (weights * left * right).sum(axis=1) / np.sqrt(left_spread * right_spread)


def _centred(values: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The values minus their mean, and the sum of their squares; NaN if that is only rounding error."""
    centred = values - (weights * values).sum(axis=1, keepdims=True) / weights.sum(axis=1, keepdims=True)
    spread = (weights * centred**2).sum(axis=1)
    return centred, np.where(spread <= 1e-24 * (weights * values**2).sum(axis=1), np.nan, spread)


def _ranks(values: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Each pair's rank inside each resample; copies and equal values share the middle rank: [samples, n]."""
    order, starts = _groups(values)
    sizes = np.add.reduceat(weights[:, order], starts, axis=1)
    middles = np.cumsum(sizes, axis=1) - (sizes - 1) / 2
    group = np.empty(len(values), dtype=np.int64)
    group[order] = np.repeat(np.arange(len(starts)), np.diff(np.append(starts, len(values))))
    return middles[:, group]


def _groups(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """An ascending order, and the start of each run of equal values in it."""
    order = np.argsort(values, kind="stable")
    return order, np.flatnonzero(np.append(True, np.diff(values[order]) != 0))
