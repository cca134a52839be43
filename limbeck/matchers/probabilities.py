"""The probabilities of a calibrated model, as fitted by `limbeck.matchers.calibration`."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from limbeck.errors import LimbeckError, bad_input
from limbeck.files import read_json

CALIBRATION = "calibration.json"


def calibrated(folder: Path | None, scores: np.ndarray) -> np.ndarray:
    """p = sigmoid(slope * s + offset), with the slope and offset from a model's folder."""
    place = folder / CALIBRATION if folder is not None else None
    if place is None or not place.is_file():
        problem = "this model has no calibration, so its scores are not probabilities"
        raise LimbeckError(f"{problem}; distil it on labelled pairs that have a dev split, or use score")
    values = read_json(place)
    try:
        slope, offset = float(values["slope"]), float(values["offset"])
    except (TypeError, KeyError, ValueError) as error:
        raise bad_input(place, "is not a calibration", "remove it, or calibrate the model again") from error
    logits = slope * np.asarray(scores, dtype=np.float64) + offset
    return np.exp(-np.logaddexp(0.0, -logits))  # sigmoid without overflow
