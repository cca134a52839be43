"""Measure labelled pairs: `limbeck evaluate` on a pair set.

Accuracy and F1 need a threshold. A calibrated model has its own. For other models, the threshold with the best F1 on
dev is used. Without a dev split, accuracy and F1 are left out, because a cosine above 0 means nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from limbeck.data import PairData
from limbeck.errors import LimbeckError
from limbeck.evaluation.pair_speed import pair_speed, score_by_head
from limbeck.evaluation.pairs import DEFAULTS, evaluate_pairs, scored_pairs
from limbeck.evaluation.request import PAIRS, Evaluation, Request
from limbeck.evaluation.sample import sample
from limbeck.evaluation.significance import compare_pairs
from limbeck.matchers import Matcher
from limbeck.matchers.calibration import Calibration, calibrate
from limbeck.matchers.names import model_folder

AT_THRESHOLD = ("accuracy", "f1")
DEV_PAIRS = 2000  # at most so many pairs for choosing a threshold
Texts = Sequence[tuple[str, ...]]


@dataclass(frozen=True)
class Scored:
    """A model's scores, shifted so that a match is above 0, and the source of its threshold, or None."""

    scores: np.ndarray
    threshold: str | None


class PairEvaluation:
    """One model on one pair set, optionally compared with another model."""

    def __init__(self, request: Request, data: PairData) -> None:
        self.request, self.data = request, data
        labelled = [pair for pair in data.split(request.split) if pair.label is not None]
        pairs = sample(labelled, request.limit, request.seed)
        self.available = len(labelled)
        self.texts = [pair.texts for pair in pairs]
        self.labels = np.array([pair.label for pair in pairs], dtype=np.float64)

    def run(self, matcher: Matcher, rival: Matcher | None) -> Evaluation:
        request = self.request
        ours = self._scored(request.model, self._scorer(matcher, request.head))
        theirs = self._scored(str(request.against), matcher_scorer(rival)) if rival is not None else None
        names = self._measures(ours)
        measures = evaluate_pairs(ours.scores, self.labels, names)
        compared = [name for name in measures if name not in AT_THRESHOLD or (theirs and theirs.threshold)]
        comparisons = [compare_pairs(ours.scores, theirs.scores, self.labels, name) for name in compared if theirs]
        return Evaluation(
            PAIRS,
            request.split,
            len(self.texts),
            measures,
            pairs_per_second=pair_speed(matcher, self.texts, request.head or "auto"),
            comparisons=tuple(comparisons),
            model=request.model,
            data=request.data,
            against=request.against,
            available=self.available,
            settings={
                "limit": request.limit,
                "seed": request.seed,
                "lengths": request.lengths,
                "head": request.head,
                "threshold": ours.threshold,
                "threshold_against": theirs.threshold if theirs else None,
            },
            notes=tuple(self._notes(ours, theirs)),
        )

    def _scorer(self, matcher: Matcher, head: str | None) -> Callable[[Texts], np.ndarray]:
        return (lambda texts: score_by_head(matcher, texts, head)) if head else matcher_scorer(matcher)

    def _scored(self, model: str, score: Callable[[Texts], np.ndarray]) -> Scored:
        scores = score(self.texts)
        calibration = Calibration.load(model_folder(model))
        if calibration is not None:
            return Scored(calibration.logits(scores), "from its calibration.json")
        if scores.ndim == 2 and scores.shape[1] > 1:
            return Scored(scores, "the largest of its outputs")
        dev = self._dev()
        if dev is None or not self._binary(scores):
            return Scored(scores, None)
        texts, labels = dev
        chosen = calibrate(score(texts), labels)
        return Scored(chosen.logits(scores), f"best F1 on {len(labels):,} pairs of dev")

    def _binary(self, scores: np.ndarray) -> bool:
        return scored_pairs(scores, self.labels).kind == "binary"

    def _dev(self) -> tuple[Texts, np.ndarray] | None:
        """Pairs to choose a threshold on: from a split that is not measured, with labels of both kinds."""
        if self.request.split == "dev":
            return None
        labelled = [pair for pair in self.data.splits.get("dev", []) if pair.label in (0, 1)]
        pairs = sample(labelled, DEV_PAIRS, self.request.seed)
        labels = np.array([pair.label for pair in pairs], dtype=np.float64)
        return ([pair.texts for pair in pairs], labels) if len(set(labels.tolist())) == 2 else None

    def _measures(self, ours: Scored) -> list[str]:
        """The requested measures, or all measures of the task that can be computed."""
        asked = [name.strip().lower() for name in (*(self.request.measures or ()), *self.request.also)]
        without = ours.threshold is None and self._binary(ours.scores)
        missing = [name for name in asked if name in AT_THRESHOLD]
        if without and missing:
            problem = f"{missing[0]}: needs a threshold, but {self.request.model} has no calibration"
            raise LimbeckError(f"{problem}; give a pair folder with a dev file, or measure auc and ap")
        defaults = DEFAULTS[scored_pairs(ours.scores, self.labels).kind]
        chosen = asked if self.request.measures else [*defaults, *asked]
        return list(dict.fromkeys(name for name in chosen if not (without and name in AT_THRESHOLD)))

    def _notes(self, ours: Scored, theirs: Scored | None) -> list[str]:
        if not self._binary(ours.scores):
            return []
        named = {self.request.model: ours} | ({str(self.request.against): theirs} if theirs else {})
        lines = [f"threshold of {name}: {one.threshold}" for name, one in named.items() if one and one.threshold]
        lacking = [name for name, one in named.items() if one and one.threshold is None]
        if lacking:
            why = "there is neither a calibration nor a dev split to choose a threshold on"
            lines.append(f"no accuracy and F1 for {' and '.join(lacking)}: {why}")
        return lines


def matcher_scorer(matcher: Matcher) -> Callable[[Texts], np.ndarray]:
    return lambda texts: matcher.score(texts)
