"""Measures of pair tasks: match or not, which class, how similar.

| task | scores | labels | measures |
|---|---|---|---|
| binary | logits [n] or [n, 2] | 0 or 1 | auc, ap, accuracy, f1 of class 1; pearson, spearman |
| classes | logits [n, C] | 0 to C - 1 | accuracy, macro f1, macro auc and ap of each class against the rest |
| graded | scores [n] | numbers | pearson, spearman |

A logit above 0 predicts 1 (if a model has a threshold, its scores are shifted to put it at 0). Two columns of logits
become one, second minus first. For soft labels [n, C] the largest counts.

Undefined cases: labels with only one value are refused, because there is nothing to rank or to correlate with. A model
that gives every pair the same score has AUC 0.5 and a correlation of 0. The F1 of a class that is neither present nor
predicted is 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from limbeck.errors import LimbeckError, did_you_mean

PAIR_MEASURES = ("auc", "ap", "accuracy", "f1", "pearson", "spearman")
DEFAULTS = {"binary": ("auc", "ap", "accuracy", "f1"), "classes": ("accuracy", "f1"), "graded": ("pearson", "spearman")}
CORRELATIONS = ("pearson", "spearman")


@dataclass(frozen=True)
class ScoredPairs:
    """Scores and labels in one of the three forms of the table above."""

    kind: Literal["binary", "classes", "graded"]
    scores: np.ndarray  # [n] or, for classes, [n, C]
    labels: np.ndarray  # [n]

    def __len__(self) -> int:
        return len(self.labels)


def scored_pairs(scores: ArrayLike, labels: ArrayLike) -> ScoredPairs:
    """Detect the kind of task, and refuse scores and labels that do not fit together."""
    values, truth = np.asarray(scores, dtype=np.float64), np.asarray(labels, dtype=np.float64)
    if len(values) != len(truth):
        raise LimbeckError(f"{len(values)} scores for {len(truth)} labels; give one score for each pair")
    if len(values) == 0:
        raise LimbeckError("there are no pairs to measure; name a split with pairs")
    for name, numbers in (("score", values), ("label", truth)):
        bad = np.flatnonzero(~np.isfinite(numbers).reshape(len(numbers), -1).all(axis=1))
        if len(bad):
            raise LimbeckError(f"the {name} of pair {bad[0] + 1} is not a finite number; correct or remove it")
    if truth.ndim == 2:
        truth = truth.argmax(axis=1).astype(np.float64)
    if values.ndim == 2 and values.shape[1] <= 2:
        values = values[:, -1] - values[:, 0] if values.shape[1] == 2 else values[:, 0]
    if values.ndim == 1:
        return ScoredPairs("binary" if np.isin(truth, (0, 1)).all() else "graded", values, truth)
    bad = np.flatnonzero((truth < 0) | (truth >= values.shape[1]) | (truth % 1 != 0))
    if len(bad):
        problem = f"label {truth[bad[0]]:g} of pair {bad[0] + 1} is not one of the {values.shape[1]} classes"
        raise LimbeckError(f"{problem}; label classes 0 to {values.shape[1] - 1}")
    return ScoredPairs("classes", values, truth)


def evaluate_pairs(scores: ArrayLike, labels: ArrayLike, measures: Sequence[str] | None = None) -> dict[str, float]:
    """Measure name -> value; the measures default to those of the task."""
    task = scored_pairs(scores, labels)
    names = check_measures(task, DEFAULTS[task.kind] if measures is None else measures)
    return {name: _measure(name, task) for name in names}


def check_measures(task: ScoredPairs, measures: Sequence[str]) -> list[str]:
    """The names in lower case; an error says why a measure is not defined here."""
    names = [name.strip().lower() for name in measures]
    for name in names:
        if name not in PAIR_MEASURES:
            raise LimbeckError(f"unknown pair measure {name!r}; {did_you_mean(name, list(PAIR_MEASURES))}")
        fits = {"binary": True, "classes": name not in CORRELATIONS, "graded": name in CORRELATIONS}[task.kind]
        if not fits:
            raise LimbeckError(f"{name} is not defined for {task.kind} labels; use {', '.join(DEFAULTS[task.kind])}")
        if name not in ("accuracy", "f1") and len(np.unique(task.labels)) < 2:
            raise LimbeckError(f"all {len(task)} labels are {task.labels[0]:g}, so {name} is undefined; use more pairs")
    return names


def predictions(task: ScoredPairs) -> np.ndarray:
    """The predicted class of each pair: [n]."""
    return task.scores.argmax(axis=1) if task.kind == "classes" else (task.scores > 0).astype(int)


def one_against_rest(task: ScoredPairs) -> list[tuple[np.ndarray, np.ndarray]]:
    """Binary problems (scores [n], is positive [n]) whose AUC or AP is averaged, without classes that have no pairs."""
    if task.kind != "classes":
        return [(task.scores, task.labels == 1)]
    from scipy import special

    probabilities = special.softmax(task.scores, axis=1)
    return [(probabilities[:, int(value)], task.labels == value) for value in np.unique(task.labels)]


def _measure(name: str, task: ScoredPairs) -> float:
    from scipy import stats
    from sklearn import metrics

    if name in ("auc", "ap"):
        function = metrics.roc_auc_score if name == "auc" else metrics.average_precision_score
        return float(np.mean([function(positive, scores) for scores, positive in one_against_rest(task)]))
    if name == "accuracy":
        return float(metrics.accuracy_score(task.labels, predictions(task)))
    if name == "f1":
        average = "macro" if task.kind == "classes" else "binary"
        return float(metrics.f1_score(task.labels, predictions(task), average=average, zero_division=0.0))
    if np.ptp(task.scores) == 0:
        return 0.0
    correlate = stats.pearsonr if name == "pearson" else stats.spearmanr
    return float(correlate(task.scores, task.labels).statistic)
