import math

import numpy as np
import pytest

from limbeck.data.candidates import CandidateLists
from limbeck.data.dataset import Qrels, Run
from limbeck.data.texts import Texts
from limbeck.errors import LimbeckError
from limbeck.report.analyses.base import judged_lists


def test_lists_with_both_kinds_are_kept_and_the_others_counted() -> None:
    run = {"q1": {"a": 1.0, "b": 2.0, "c": 3.0}, "q2": {"a": 1.0}, "q3": {"b": 1.0, "c": 0.0}, "q4": {}}
    qrels = {"q1": {"a": 1, "c": 0}, "q2": {"a": 1}, "q3": {"a": 1}}
    lists, left_out = judged_lists("m", run, qrels)
    assert [each.query for each in lists] == ["q1"]
    assert lists[0].scores.tolist() == [1.0, 2.0, 3.0]
    assert lists[0].relevant.tolist() == [True, False, False]
    assert left_out == 3


def test_the_grade_that_counts_as_relevant_can_be_raised() -> None:
    (only,), _ = judged_lists("m", {"q": {"a": 1.0, "b": 2.0}}, {"q": {"a": 1, "b": 2}}, at_least=2)
    assert only.relevant.tolist() == [False, True]


@pytest.mark.parametrize(
    ("run", "qrels", "message"),
    [
        ({}, {"q": {"a": 1}}, "m: the run is empty; score"),
        ({"x": {"a": 1.0, "b": 2.0}}, {"q": {"a": 1}}, "m: no query of the run is judged; give the qrels"),
        ({"q": {"b": 1.0, "c": 2.0}}, {"q": {"a": 1}}, "m: no list holds a document judged 1 or more; add positives"),
        ({"q": {"a": 1.0}}, {"q": {"a": 1}}, "m: the lists with a positive have no negatives; score negatives"),
        ({"q": {"a": 1.0, "b": math.nan}}, {"q": {"a": 1}}, "m: the score of query 'q', document 'b' is not a finite"),
        ({"q": {"a": math.inf, "b": 0.0}}, {"q": {"a": 1}}, "m: the score of query 'q', document 'a' is not a finite"),
    ],
)
def test_a_run_that_lacks_something_is_refused_in_one_line(run: Run, qrels: Qrels, message: str) -> None:
    with pytest.raises(LimbeckError) as caught:
        judged_lists("m", run, qrels)
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


def test_scores_may_be_numpy_numbers() -> None:
    (only,), _ = judged_lists("m", {"q": {"a": np.float32(1.5), "b": 2}}, {"q": {"a": 1}})
    assert only.scores.tolist() == [1.5, 2.0]


def test_lists_may_be_columnar() -> None:
    queries, corpus = Texts.from_dict({"q": "query"}), Texts.from_dict({"a": "x", "b": "y"})
    run = CandidateLists.scored(queries, corpus, np.array([0, 0]), np.array([0, 1]), np.array([2.0, 3.0]))
    (only,), left_out = judged_lists("m", run, {"q": {"b": 1}})
    assert (only.scores.tolist(), only.relevant.tolist(), left_out) == ([2.0, 3.0], [False, True], 0)
