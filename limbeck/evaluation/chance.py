"""What a model gets that knows nothing: the same answer for every pair. "Kept" counts from there, not from 0.

An AUC of 0.5 is a coin flip; a student with 0.5 has kept nothing of a teacher with 0.68, not 73% of it.
"""

from __future__ import annotations

import numpy as np

from limbeck.evaluation.measures import RankingResult
from limbeck.evaluation.pair_result import PairResult
from limbeck.evaluation.pairs import CORRELATIONS, evaluate_pairs


def kept(ours: float, theirs: float, chance: float) -> float | None:
    """The share of what a teacher has above chance that a student has; None where the teacher has nothing."""
    return max(0.0, (ours - chance) / (theirs - chance)) if theirs > chance else None


def chance(result: RankingResult | PairResult, measure: str) -> float | None:
    """The best that the same answer for every pair gets; 0 for rankings; None where shares mean nothing.

    A correlation of 0.4 is not half of one of 0.8.
    """
    if not isinstance(result, PairResult):
        return 0.0
    if measure in CORRELATIONS:
        return None
    answers = _constant(result.scores[0])
    return max(evaluate_pairs(answer, result.labels, [measure])[measure] for answer in answers)


def _constant(scores: np.ndarray) -> list[np.ndarray]:
    """Scores of the same shape that always say the same: yes or no, or each of the classes."""
    if scores.ndim == 1:
        return [np.full(len(scores), sign) for sign in (1.0, -1.0)]
    return [np.tile(row, (len(scores), 1)) for row in np.eye(scores.shape[1])]
