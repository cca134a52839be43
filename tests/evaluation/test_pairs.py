from __future__ import annotations

import numpy as np
import pytest
from scipy import special

from limbeck.errors import LimbeckError
from limbeck.evaluation.pairs import evaluate_pairs


def test_binary_values_worked_out_by_hand() -> None:
    scores, labels = [2.0, 1.0, -1.0, -2.0], [1, 0, 1, 0]
    found = evaluate_pairs(scores, labels)
    assert found["auc"] == 3 / 4  # of four (positive, negative) pairs, only (-1, 1) is in the wrong order
    assert found["ap"] == pytest.approx((1 / 1 + 2 / 3) / 2)
    assert found["accuracy"] == 1 / 2
    assert found["f1"] == 1 / 2  # one hit, one false alarm, one miss
    assert list(found) == ["auc", "ap", "accuracy", "f1"]


def test_a_logit_of_exactly_zero_says_no() -> None:
    assert evaluate_pairs([0.0, 1.0], [0, 1], ["accuracy"]) == {"accuracy": 1.0}


def test_two_columns_of_logits_are_one_margin() -> None:
    rng = np.random.default_rng(0)
    logits, labels = rng.normal(size=(50, 2)), rng.integers(0, 2, 50)
    assert evaluate_pairs(logits, labels) == evaluate_pairs(logits[:, 1] - logits[:, 0], labels)
    assert evaluate_pairs(logits[:, :1], labels) == evaluate_pairs(logits[:, 0], labels)


def test_classes_are_measured_by_accuracy_and_macro_f1_worked_out_by_hand() -> None:
    logits = np.eye(3)[[0, 0, 1, 2, 2, 2]]
    labels = [0, 1, 1, 2, 2, 0]
    found = evaluate_pairs(logits, labels)
    assert found["accuracy"] == pytest.approx(4 / 6)
    assert found["f1"] == pytest.approx((1 / 2 + 2 / 3 + 4 / 5) / 3)


def test_auc_of_classes_is_the_mean_of_each_class_against_the_rest() -> None:
    rng = np.random.default_rng(1)
    logits, labels = rng.normal(size=(60, 3)), rng.integers(0, 3, 60)
    chances = special.softmax(logits, axis=1)
    each = []
    for value in range(3):
        up, down = chances[labels == value, value], chances[labels != value, value]
        each.append((up[:, None] > down).mean())
    assert evaluate_pairs(logits, labels, ["auc"])["auc"] == pytest.approx(np.mean(each))


def test_of_soft_labels_the_largest_counts() -> None:
    logits, soft = np.eye(3)[[0, 1, 2]], [[0.6, 0.3, 0.1], [0.1, 0.8, 0.1], [0.5, 0.1, 0.4]]
    assert evaluate_pairs(logits, soft, ["accuracy"])["accuracy"] == pytest.approx(2 / 3)


def test_graded_labels_are_measured_by_correlations_worked_out_by_hand() -> None:
    scores, labels = np.array([1.0, 2.0, 4.0, 3.0]), np.array([0.0, 2.5, 3.0, 5.0])
    found = evaluate_pairs(scores, labels)
    x, y = scores - scores.mean(), labels - labels.mean()
    assert found["pearson"] == pytest.approx((x * y).sum() / np.sqrt((x**2).sum() * (y**2).sum()))
    assert found["spearman"] == pytest.approx(1 - 6 * 2 / (4 * 15))
    assert set(evaluate_pairs(scores, labels > 1, ["pearson", "spearman"])) == {"pearson", "spearman"}


def test_a_model_that_gives_one_score_to_all_has_auc_one_half_and_no_correlation() -> None:
    found = evaluate_pairs([1.0, 1.0, 1.0], [0, 1, 1], ["auc", "pearson", "spearman"])
    assert found["auc"] == 0.5
    assert found["pearson"] == 0
    assert found["spearman"] == 0


def test_labels_of_one_class_are_refused_where_the_measure_is_undefined() -> None:
    with pytest.raises(LimbeckError, match="all 2 labels are 1, so auc is undefined"):
        evaluate_pairs([0.1, 0.2], [1, 1])
    with pytest.raises(LimbeckError, match="pearson is undefined"):
        evaluate_pairs([0.1, 0.2], [3.5, 3.5])
    assert evaluate_pairs([1.0, -1.0], [1, 1], ["accuracy", "f1"]) == {"accuracy": 0.5, "f1": pytest.approx(2 / 3)}
    assert evaluate_pairs([-1.0, -1.0], [0, 0], ["f1"]) == {"f1": 0.0}


@pytest.mark.parametrize(
    ("scores", "labels", "measures", "says"),
    [
        ([1.0], [1, 0], None, "1 scores for 2 labels"),
        ([], [], None, "no pairs"),
        ([1.0, np.nan], [1, 0], None, "score of pair 2 is not a finite number"),
        ([1.0, 1.0], [np.inf, 0], None, "label of pair 1 is not a finite number"),
        ([1.0, -1.0], [1, 0], ["acuracy"], "did you mean 'accuracy'"),
        ([1.0, 2.0], [0.5, 3], ["auc"], "auc is not defined for graded labels; use pearson, spearman"),
        (np.eye(3), [0, 1, 2], ["pearson"], "pearson is not defined for classes labels"),
        (np.eye(3), [0, 1, 3], None, "label 3 of pair 3 is not one of the 3 classes"),
        (np.eye(3), [0, 0.5, 1], None, "label 0.5 of pair 2"),
    ],
)
def test_incompatible_options_are_one_line_errors(scores, labels, measures, says: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(LimbeckError, match=says):
        evaluate_pairs(scores, labels, measures)
