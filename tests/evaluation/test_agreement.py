from __future__ import annotations

import numpy as np
import pytest

from limbeck.errors import LimbeckError
from limbeck.evaluation.agreement import agreement


def test_values_worked_out_by_hand() -> None:
    teacher = {"q": {"a": 4.0, "b": 3.0, "c": 2.0, "d": 1.0}}
    student = {"q": {"a": 0.3, "b": 0.4, "c": 0.1, "d": 0.2}}  # two swapped neighbours: 4 pairs agree, 2 do not
    found = agreement(student, teacher, k=2)
    assert found.means["overlap@2"] == 1.0
    assert found.means["kendall"] == pytest.approx((4 - 2) / 6)
    assert found.means["spearman"] == pytest.approx(1 - 6 * 4 / (4 * 15))
    assert agreement(student, teacher, k=1).means["overlap@1"] == 0.0
    assert agreement(student, teacher, k=3).means["overlap@3"] == pytest.approx(2 / 3)


def test_any_rising_transformation_of_the_teacher_agrees_fully_and_its_negative_not_at_all() -> None:
    rng = np.random.default_rng(0)
    teacher = {f"q{i}": {f"d{j}": float(s) for j, s in enumerate(rng.normal(size=20))} for i in range(5)}
    same = {query: {d: np.exp(3 * s) for d, s in scores.items()} for query, scores in teacher.items()}
    opposite = {query: {d: -s for d, s in scores.items()} for query, scores in teacher.items()}
    expected = {"overlap@10": 1.0, "kendall": 1.0, "spearman": 1.0}
    assert agreement(same, teacher).means == pytest.approx(expected)
    assert agreement(opposite, teacher).means == pytest.approx({"overlap@10": 0.0, "kendall": -1.0, "spearman": -1.0})


def test_queries_are_averaged_in_sorted_order_and_what_only_the_student_scored_is_left_out() -> None:
    teacher = {"b": {"x": 2.0, "y": 1.0}, "a": {"x": 2.0, "y": 1.0}}
    student = {"a": {"x": 2.0, "y": 1.0, "extra": 9.0}, "b": {"x": 1.0, "y": 2.0}, "c": {"x": 1.0}}
    found = agreement(student, teacher, k=1)
    assert found.query_ids == ("a", "b")
    assert found.overlap.tolist() == [1.0, 0.0]
    assert found.kendall.tolist() == [1.0, -1.0]
    assert found.means["kendall"] == 0.0


def test_lists_that_cannot_tell_are_nan_and_left_out_of_the_mean() -> None:
    teacher = {"short": {"x": 1.0, "y": 0.0}, "flat": dict.fromkeys("xyz", 1.0), "one": {"x": 1.0}}
    student = {"short": {"x": 1.0, "y": 0.0}, "flat": {"x": 3.0, "y": 2.0, "z": 1.0}, "one": {"x": 1.0}}
    found = agreement(student, teacher, k=2)
    assert found.query_ids == ("flat", "one", "short")
    assert np.isnan(found.overlap).tolist() == [True, True, True]
    assert np.isnan(found.kendall).tolist() == [True, True, False]
    assert found.means["spearman"] == pytest.approx(1.0)
    assert np.isnan(agreement({"one": {"x": 1.0}}, {"one": {"x": 1.0}}).means["kendall"])


def test_a_student_that_gives_one_score_to_all_follows_nothing() -> None:
    found = agreement({"q": dict.fromkeys("xyz", 0.0)}, {"q": {"x": 1.0, "y": 2.0, "z": 3.0}}, k=1)
    assert found.means == {"overlap@1": 0.0, "kendall": 0.0, "spearman": 0.0}


def test_what_is_missing_or_not_a_number_is_named() -> None:
    with pytest.raises(LimbeckError, match=r"'q': the student did not score .*'y'"):
        agreement({"q": {"x": 1.0}}, {"q": {"x": 1.0, "y": 0.0}})
    with pytest.raises(LimbeckError, match="'q': a score is not a number"):
        agreement({"q": {"x": float("nan"), "y": 0.0}}, {"q": {"x": 1.0, "y": 0.0}})
    with pytest.raises(LimbeckError, match="scored no query"):
        agreement({}, {})
    with pytest.raises(LimbeckError, match="k of 1 or more"):
        agreement({"q": {"x": 1.0}}, {"q": {"x": 1.0}}, k=0)
