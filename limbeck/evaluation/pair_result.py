"""The results of one system on labelled pairs, with one or several seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from limbeck.errors import LimbeckError
from limbeck.evaluation.pairs import CORRELATIONS, evaluate_pairs, scored_pairs
from limbeck.evaluation.significance import Comparison, compare_over_seeds
from limbeck.evaluation.system_result import SystemResult


@dataclass(frozen=True)
class PairResult(SystemResult):
    """Scores of the same pairs, one array per seed, and the labels."""

    measures: tuple[str, ...]
    labels: np.ndarray  # [pairs] or [pairs, classes]
    scores: tuple[np.ndarray, ...]  # for each seed, [pairs] or [pairs, classes]

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
        """Paired bootstrap over pairs, for the mean over seeds."""
        if not np.array_equal(self.labels, baseline.labels):
            raise LimbeckError("the two systems were judged on different pairs; evaluate both on the same")
        ours, theirs = ([scored_pairs(scores, self.labels) for scores in result.scores] for result in (self, baseline))
        return compare_over_seeds(ours, theirs, measure)

    @classmethod
    def over_seeds(cls, results: Sequence[Self]) -> Self:
        """The scores of all seeds, one array each."""
        return replace(results[0], scores=tuple(one.scores[0] for one in results))

    def chance(self, measure: str) -> float | None:
        """The best value for a constant answer. None for correlations, where ratios mean nothing."""
        if measure in CORRELATIONS:
            return None
        answers = _constant(self.scores[0])
        return max(evaluate_pairs(answer, self.labels, [measure])[measure] for answer in answers)

    def by_query(self, measure: str) -> dict[str, float]:
        return {}

    def as_json(self) -> dict[str, Any]:
        return {"measures": self.measures, "labels": self.labels.tolist(), "scores": self.scores[0].tolist()}

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> Self:
        return cls(tuple(record["measures"]), np.array(record["labels"]), (np.array(record["scores"]),))


def _constant(scores: np.ndarray) -> list[np.ndarray]:
    """Constant scores of the same shape: always yes, always no, or always one of the classes."""
    if scores.ndim == 1:
        return [np.full(len(scores), sign) for sign in (1.0, -1.0)]
    return [np.tile(row, (len(scores), 1)) for row in np.eye(scores.shape[1])]
