"""What one system made of labelled pairs, under one seed or several."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from limbeck.errors import LimbeckError
from limbeck.evaluation.pairs import evaluate_pairs, pair_task
from limbeck.evaluation.significance import Comparison, compare_over_seeds


@dataclass(frozen=True)
class PairResult:
    """Scores of the same pairs, one array a seed, with the labels they are held against."""

    measures: tuple[str, ...]
    labels: np.ndarray  # [pairs] or [pairs, classes]
    scores: tuple[np.ndarray, ...]  # of each seed, [pairs] or [pairs, classes]

    @classmethod
    def of(cls, scores: np.ndarray, labels: np.ndarray, measures: list[str] | None = None) -> PairResult:
        found = evaluate_pairs(scores, labels, measures)
        return cls(tuple(found), labels, (scores,))

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def means(self) -> dict[str, float]:
        """Measure name -> mean over seeds."""
        found = [evaluate_pairs(scores, self.labels, list(self.measures)) for scores in self.scores]
        return {name: float(np.mean([values[name] for values in found])) for name in self.measures}

    def compare(self, baseline: PairResult, measure: str) -> Comparison:
        """Paired bootstrap over pairs of the mean over seeds."""
        if not np.array_equal(self.labels, baseline.labels):
            raise LimbeckError("the two systems were judged on different pairs; evaluate both on the same")
        ours, theirs = ([pair_task(scores, self.labels) for scores in result.scores] for result in (self, baseline))
        return compare_over_seeds(ours, theirs, measure)
