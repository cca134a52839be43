"""Probabilities that mean something, and thresholds that keep their word."""

from __future__ import annotations

import json

import numpy as np
import pytest
from scipy.special import expit
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import precision_score, recall_score

from limbeck.errors import LimbeckError
from limbeck.matchers.calibration import Calibration, calibrate, check_criterion, choose_threshold


def some_pairs(count: int = 4000, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Scores whose true probability is sigmoid(0.5 s - 1): overconfident, and shifted."""
    generator = np.random.default_rng(seed)
    scores = generator.normal(0, 4, size=count)
    return scores, (generator.random(count) < expit(0.5 * scores - 1)).astype(int)


def test_the_fit_finds_what_made_the_labels_and_equals_a_logistic_regression():
    scores, labels = some_pairs(40_000)
    found = calibrate(scores, labels)
    assert found.slope == pytest.approx(0.5, abs=0.02) and found.offset == pytest.approx(-1, abs=0.05)
    theirs = LogisticRegression(C=np.inf).fit(scores[:, None], labels)
    assert found.slope == pytest.approx(float(theirs.coef_[0, 0]), abs=2e-3)
    assert found.offset == pytest.approx(float(theirs.intercept_[0]), abs=2e-3)


def test_a_probability_of_a_tenth_is_one_in_ten_on_pairs_that_were_not_seen():
    found = calibrate(*some_pairs())
    scores, labels = some_pairs(20_000, seed=1)
    probabilities = found.probabilities(scores)
    for low in np.arange(0, 1, 0.1):
        some = (probabilities >= low) & (probabilities < low + 0.1)
        assert labels[some].mean() == pytest.approx(probabilities[some].mean(), abs=0.05)
    assert np.array_equal(np.argsort(probabilities), np.argsort(scores))


def test_labels_that_scores_part_wholly_give_finite_probabilities():
    found = calibrate(np.array([-3.0, -2.0, 2.0, 3.0]), np.array([0, 0, 1, 1]))
    assert np.isfinite([found.slope, found.offset]).all()
    assert found.precision == found.recall == found.f1 == 1.0
    assert found.probabilities(np.array([-2.0, 2.0])).tolist() == pytest.approx([1 / 4, 3 / 4], abs=0.1)


@pytest.mark.parametrize("criterion", ["f1", "precision=0.8", "recall=0.9", "precision=0.5"])
def test_a_threshold_gives_what_it_says_and_no_other_serves_better(criterion):
    scores, labels = some_pairs(500, seed=2)
    scores = np.round(scores)  # many equal ones
    found = calibrate(scores, labels, criterion)
    guess = found.probabilities(scores) >= found.threshold
    assert precision_score(labels, guess) == pytest.approx(found.precision)
    assert recall_score(labels, guess) == pytest.approx(found.recall)
    kind, _, least = criterion.partition("=")
    tried = []
    for value in np.unique(found.probabilities(scores)):
        some = found.probabilities(scores) >= value
        precision, recall = precision_score(labels, some), recall_score(labels, some)
        if kind == "f1":
            tried.append(2 * precision * recall / (precision + recall))
        elif {"precision": precision, "recall": recall}[kind] >= float(least):
            tried.append({"precision": recall, "recall": precision}[kind])
    best = {"f1": found.f1, "precision": found.recall, "recall": found.precision}[kind]
    assert best == pytest.approx(max(tried))


def test_by_hand():
    threshold, found = choose_threshold(np.array([0.9, 0.8, 0.7, 0.1]), np.array([1, 0, 1, 0]).astype(bool), "f1")
    assert threshold == pytest.approx(0.4) and found == {"precision": pytest.approx(2 / 3), "recall": 1.0}
    assert choose_threshold(np.array([0.9, 0.8]), np.array([True, False]), "precision=1")[0] == pytest.approx(0.85)


def test_it_is_in_the_models_folder(tmp_path):
    found = calibrate(*some_pairs())
    found.save(tmp_path)
    assert Calibration.load(tmp_path) == found
    assert Calibration.load(tmp_path / "elsewhere") is None
    whole = json.loads((tmp_path / "calibration.json").read_text())
    for damaged in ({"slope": 1}, whole | {"slope": "steep"}, whole | {"colour": "red"}, [whole]):
        (tmp_path / "calibration.json").write_text(json.dumps(damaged))
        with pytest.raises(LimbeckError, match="is not a calibration; remove it"):
            Calibration.load(tmp_path)


def test_what_cannot_be_is_refused():
    with pytest.raises(LimbeckError, match="positive and negative pairs"):
        calibrate(some_pairs(50)[0], np.ones(50))
    with pytest.raises(LimbeckError, match="no threshold reaches precision=1 on dev; the best precision is"):
        calibrate(np.array([1.0, 2.0, 3.0]), np.array([1, 1, 0]), "precision=1")
    for wrong in ("accuracy", "precision", "precision=2", "f1=0.5"):
        with pytest.raises(LimbeckError, match="write f1, precision=0.95 or recall=0.9"):
            check_criterion(wrong)
