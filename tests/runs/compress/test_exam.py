from __future__ import annotations

import numpy as np
import pytest

from limbeck.errors import LimbeckError
from limbeck.runs.compress.exam import Exam

TEACHER = {"q": {f"d{rank}": 1.0 - rank / 100 for rank in range(12)}}


def test_without_labels_quality_is_agreement_with_the_teachers_own_list():
    exam = Exam(["q"], {}, TEACHER)
    same = exam.judge(TEACHER)
    assert exam.measure == "agreement ndcg@10" and same.means == {"agreement ndcg@10": 1.0, "overlap@10": 1.0}
    run = {"q": {"d1": 3.0, "d0": 2.0, "d11": 1.0}}  # the first two in the wrong order, then one outside the top 10
    gains, discounts = np.arange(10, 0, -1), 1 / np.log2(np.arange(2, 12))
    expected = (9 * discounts[0] + 10 * discounts[1]) / (gains * discounts).sum()
    found = exam.judge(run).means
    assert found["overlap@10"] == pytest.approx(0.2)
    assert found["agreement ndcg@10"] == pytest.approx(expected)


def test_with_labels_they_decide_and_agreement_is_shown_too():
    exam = Exam(["q"], {"q": {"d3": 1}}, TEACHER)
    assert exam.measure == "ndcg@10"
    found = exam.judge({"q": {"d3": 1.0}}).means
    assert list(found) == ["ndcg@10", "agreement ndcg@10", "overlap@10"]
    assert found["ndcg@10"] == 1.0 and found["overlap@10"] == pytest.approx(0.1)


def test_a_small_corpus_is_compared_on_as_many_documents_as_there_are():
    assert Exam(["q"], {}, {"q": {"a": 2.0, "b": 1.0}}).judge({"q": {"b": 2.0, "a": 1.0}}).means["overlap@10"] == 1.0


def test_agreement_is_left_out_if_the_teacher_did_not_rank_every_query():
    exam = Exam(["q", "r"], {"q": {"d3": 1}, "r": {"d1": 1}}, TEACHER)
    assert list(exam.judge({"q": {"d3": 1.0}, "r": {"d1": 1.0}}).means) == ["ndcg@10"]
    with pytest.raises(LimbeckError, match="neither labels nor teacher scores"):
        Exam(["r"], {}, TEACHER).judge({"r": {"d1": 1.0}})
