from __future__ import annotations

import re

import pytest

from limbeck.errors import LimbeckError
from limbeck.runs.compress.limits import Limits
from limbeck.runs.compress.verdict import Level, Required, Verdict, judge
from limbeck.runs.results import ResultRow
from tests.runs.compress.test_front import BM25, INT8, STATIC, TEACHER, TWO, offer

OTHERS, NO_WISHES = [TEACHER, INT8, BM25], Limits()


def verdict(student, others, limits=NO_WISHES, p=0.2) -> Verdict:
    return judge(student, others, limits, 10.0, lambda one, other: p)


def test_a_model_that_is_as_good_and_as_fast_makes_a_regression():
    found = verdict(TWO, [*OTHERS, offer("small", 0.77, 1, "baseline")], p=0.001)
    assert found.level == Level.REGRESSION and found.baseline == "small"


def test_a_student_that_is_not_what_was_asked_for_is_marginal():
    found = verdict(STATIC, OTHERS, Limits(keep=0.95), p=0.001)
    assert found.level == Level.MARGINAL and "95%" in found.reason


def test_a_faster_model_that_is_not_significantly_worse_makes_it_marginal():
    assert verdict(TWO, OTHERS, p=0.05).level == Level.MARGINAL
    found = verdict(TWO, OTHERS, p=0.049)
    assert found.level == Level.WIN and found.baseline == "BM25"


def test_a_better_model_that_is_hardly_slower_makes_it_marginal():
    assert verdict(TWO, [offer("int8", 0.79, 1.49, "baseline")]).level == Level.MARGINAL
    found = verdict(TWO, [offer("int8", 0.79, 1.51, "baseline")])
    assert found.level == Level.WIN and found.baseline == "int8"


def test_a_student_that_is_faster_than_everything_as_good_wins_whatever_p_is():
    found = verdict(STATIC, [TEACHER, INT8], Limits(keep=0.8), p=0.9)
    assert found.level == Level.WIN and found.baseline == "teacher, int8" and found.p == 0.9


def test_a_student_that_is_best_and_fastest_wins_against_the_best_of_the_others():
    assert verdict(offer("best", 0.9, 0.1), [TEACHER, BM25]).baseline == "teacher"


def test_the_line_can_be_read_by_a_script():
    line = str(Verdict(Level.WIN, 0.9714, 31.2, "teacher, int8", 0.4, "why"))
    assert line == "VERDICT: WIN | kept 97.1% | 31x faster | baseline teacher, int8 | p 0.4"
    assert str(Verdict(Level.MARGINAL, 0.5, 1.52, "BM25", 0.0001, "")).split(" | ")[2] == "1.5x faster"
    assert "2013x faster" in str(Verdict(Level.WIN, 1.0, 2013.4, "BM25", 0.0001, ""))
    without = str(Verdict(Level.REGRESSION, None, None, None, None, ""))
    assert re.fullmatch(
        r"VERDICT: REGRESSION \| kept unknown \| speed-up unknown \| baseline none \| p unknown", without
    )


def test_fail_below_takes_a_verdict_or_a_measure():
    found = Verdict(Level.MARGINAL, 0.9, 2.0, "BM25", 0.4, "why")
    row = ResultRow("static", "student", {"ndcg@10": 0.5, "overlap@10": 0.7}, kept=0.9)
    for reached in ([], ["marginal"], ["ndcg@10=0.5", "overlap@10=0.7"], ["kept=90%"], ["Kept=0.9"]):
        assert Required.parse(reached).missed(found, row) == []
    assert "WIN" in Required.parse(["WIN"]).missed(found, row)[0]
    assert len(Required.parse(["ndcg@10=0.6", "win"]).missed(found, row)) == 2
    assert Required.parse(["kept=95%"]).missed(found, row) == ["kept is 0.9000, below 0.95"]


@pytest.mark.parametrize("wrong", ["regression", "mrr@10=0.3", "ndcg@10=", "ndcg@10=x", "kept=nan", "=1"])
def test_what_no_run_computes_is_refused_before_it_starts(wrong):
    with pytest.raises(LimbeckError, match=r"--fail-below .*write win, marginal, or a minimum of kept, ndcg@10"):
        Required.parse([wrong])


def test_nothing_is_kept_of_a_teacher_without_quality():
    found, row = Verdict(Level.WIN, None, 2.0, "BM25", 0.4, "why"), ResultRow("static", "student", {"ndcg@10": 0.1})
    assert Required.parse(["kept=95%"]).missed(found, row) == ["kept is not known: the teacher's quality is 0"]


def test_a_measure_of_labels_is_not_reached_without_labels():
    found, row = Verdict(Level.WIN, None, 2.0, "BM25", 0.4, "why"), ResultRow("static", "student", {"overlap@10": 0.7})
    gates = Required.parse(["ndcg@10=0.1", "kept=1%", "overlap@10=0.8"])
    assert gates.missed(found, row) == [
        "ndcg@10 is not known: there are no labels",
        "kept is not known: there are no labels",
        "overlap@10 is 0.7000, below 0.8",
    ]
