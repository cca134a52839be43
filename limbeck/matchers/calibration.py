"""Calibrated probabilities and a decision threshold: fitted on dev, saved with the model.

A student that learns its teacher's soft labels ranks well, but its logits are not calibrated: 0.9 need not mean nine
in ten. p = sigmoid(slope * s + offset) (Platt) is fitted to the labels of dev, with Platt's targets (n + 1) / (n + 2)
and 1 / (m + 2) for n positives and m negatives, so that perfect separation gives finite values. The ranking is kept.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

import numpy as np
from pydantic import ConfigDict, ValidationError
from pydantic.dataclasses import dataclass

from limbeck.errors import LimbeckError, bad_input
from limbeck.files import read_json, write_json

NAME = "calibration.json"
SMALL = 1e-12
_CRITERION = re.compile(r"f1|(precision|recall)=(0?\.\d+|1(\.0*)?|0)")


@dataclass(frozen=True, config=ConfigDict(extra="forbid", strict=True, allow_inf_nan=False))
class Calibration:
    """Maps a raw score to a probability, and a probability to yes or no."""

    slope: float
    offset: float
    threshold: float  # a probability at or above it is a match
    criterion: str  # the criterion for the threshold
    precision: float  # on the pairs used to choose the threshold
    recall: float
    pairs: int

    def probabilities(self, scores: np.ndarray) -> np.ndarray:
        from scipy import special  # not at the top: a worker that scores pairs rarely needs it

        return special.expit(self.slope * np.asarray(scores, dtype=np.float64) + self.offset)

    def logits(self, scores: np.ndarray) -> np.ndarray:
        """The scores shifted and scaled so that a match is above 0; the order is kept."""
        threshold = np.clip(self.threshold, SMALL, 1 - SMALL)
        return self.slope * np.asarray(scores, dtype=np.float64) + self.offset - np.log(threshold / (1 - threshold))

    @property
    def f1(self) -> float:
        total = self.precision + self.recall
        return 2 * self.precision * self.recall / total if total else 0.0

    def save(self, folder: str | Path) -> None:
        write_json(Path(folder) / NAME, asdict(self))

    @classmethod
    def load(cls, folder: str | Path) -> Calibration | None:
        """The calibration in a model's folder, or None."""
        place = Path(folder) / NAME
        if not place.is_file():
            return None
        values = read_json(place)
        try:
            return cls(**values)
        except (TypeError, ValidationError) as error:
            raise bad_input(place, "is not a calibration", "remove it, or calibrate the model again") from error

    def __str__(self) -> str:
        found = f"precision {self.precision:.3f}, recall {self.recall:.3f}, F1 {self.f1:.3f} on {self.pairs:,} pairs"
        return f"threshold {self.threshold:.3f} for {self.criterion}: {found}"


def check_criterion(text: str) -> str:
    """`f1`, `precision=0.95` or `recall=0.9`."""
    if not _CRITERION.fullmatch(text.replace(" ", "")):
        raise LimbeckError(f"a threshold for {text!r} is not known; write f1, precision=0.95 or recall=0.9")
    return text.replace(" ", "")


def calibrate(scores: np.ndarray, labels: np.ndarray, criterion: str = "f1") -> Calibration:
    """Fit probabilities and choose a threshold on pairs with labels 0 and 1."""
    from scipy import special

    criterion = check_criterion(criterion)
    scores, truth = np.asarray(scores, dtype=np.float64), np.asarray(labels) > 0.5
    if truth.all() or not truth.any():
        raise LimbeckError("a threshold needs positive and negative pairs, and dev has only one kind; use more pairs")
    slope, offset = _platt(scores, truth)
    probabilities = special.expit(slope * scores + offset)
    threshold, found = choose_threshold(probabilities, truth, criterion)
    return Calibration(slope, offset, threshold, criterion, found["precision"], found["recall"], len(truth))


def _platt(scores: np.ndarray, truth: np.ndarray) -> tuple[float, float]:
    """Slope and offset by maximum likelihood; scores are standardised for the search, which is convex."""
    from scipy import optimize, special

    positives, negatives = int(truth.sum()), int((~truth).sum())
    wanted = np.where(truth, (positives + 1) / (positives + 2), 1 / (negatives + 2))
    centre, spread = scores.mean(), max(float(scores.std()), 1e-12)
    standard = (scores - centre) / spread

    def loss(weights: np.ndarray) -> tuple[float, np.ndarray]:
        logits = weights[0] * standard + weights[1]
        value = np.logaddexp(0, logits) - wanted * logits
        error = special.expit(logits) - wanted
        return float(value.mean()), np.array([(error * standard).mean(), error.mean()])

    rising = [(1e-6, None), (None, None)]  # a higher score never has a lower probability
    tight = {"ftol": 1e-14, "gtol": 1e-9}
    found = optimize.minimize(loss, np.array([1.0, 0.0]), jac=True, method="L-BFGS-B", bounds=rising, options=tight).x
    slope = float(found[0] / spread)
    return slope, float(found[1] - slope * centre)


def choose_threshold(probabilities: np.ndarray, truth: np.ndarray, criterion: str) -> tuple[float, Mapping[str, float]]:
    """The threshold for `criterion` on these pairs, and its precision, recall and F1.

    `f1` takes the best F1. `precision=x` takes the highest recall among thresholds with at least this precision;
    `recall=x` takes the best precision. If none qualifies, an error names the best possible value. A threshold is
    halfway between two probabilities.
    """
    order = np.argsort(-probabilities, kind="stable")
    values, hits = probabilities[order], np.cumsum(truth[order])
    last = np.append(values[1:] != values[:-1], True)  # a threshold cannot separate equal values
    taken = np.flatnonzero(last) + 1
    precision, recall = hits[taken - 1] / taken, hits[taken - 1] / truth.sum()
    if criterion == "f1":
        best = int(np.argmax(2 * precision * recall / np.maximum(precision + recall, 1e-12)))
    else:
        kind, _, number = criterion.partition("=")
        given, other = (precision, recall) if kind == "precision" else (recall, precision)
        good = np.flatnonzero(given >= float(number) - 1e-12)
        if not len(good):
            raise LimbeckError(
                f"no threshold reaches {criterion} on dev; the best {kind} is {given.max():.3f}, ask for that"
            )
        best = int(good[np.argmax(other[good])])
    at = taken[best]
    below = values[at] if at < len(values) else 0.0
    return float((values[at - 1] + below) / 2), {"precision": float(precision[best]), "recall": float(recall[best])}
