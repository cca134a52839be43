import math

import numpy as np
import pytest

from limbeck.data.dataset import Run
from limbeck.errors import LimbeckError
from limbeck.report.analyses import disagreements, disagreements_section
from limbeck.report.analyses.terms import marked, shared_part, shared_stems
from limbeck.report.blocks import Passage
from limbeck.search.analyzer import Words
from tests.report.analyses.helpers import comes_back, ranking_data, shown

DATA = ranking_data(
    {"q1": "effects of yeast on the body", "q2": "copying a file"},
    {
        "yeast": "Yeast can upset the stomach.",
        "chemo": "The side effect of <script>alert(1)</script> chemotherapy on bodies & minds.",
        "moon": "The moon is far away.",
        "copy": "Copies files, one file at a time.",
        "other": "Nothing of that kind.",
    },
)
QRELS = {"q1": {"yeast": 2, "moon": 0}, "q2": {"copy": 1}}
TEACHER: Run = {"q1": {"yeast": 3.0, "chemo": -3.0, "moon": -3.0}, "q2": {"copy": 1.0, "other": -1.0}}
STUDENT: Run = {"q1": {"yeast": 690.0, "chemo": 730.0, "moon": 670.0}, "q2": {"copy": 699.0, "other": 701.0}}


def standardised(run: Run) -> dict[str, dict[str, float]]:
    centred = {q: {d: s - np.mean(list(scores.values())) for d, s in scores.items()} for q, scores in run.items()}
    deviation = np.std([s for scores in centred.values() for s in scores.values()])
    return {q: {d: s / deviation for d, s in scores.items()} for q, scores in centred.items()}


def test_the_gap_is_that_of_scores_centred_by_query_and_scaled_by_model() -> None:
    found = disagreements(TEACHER, STUDENT, QRELS, DATA)
    teacher, student = standardised(TEACHER), standardised(STUDENT)
    top = found.overrated[0]
    assert (top.query_id, top.document_id) == ("q1", "chemo")
    assert top.teacher_standard == pytest.approx(teacher["q1"]["chemo"])
    assert top.student_standard == pytest.approx(student["q1"]["chemo"])
    assert top.gap == pytest.approx(student["q1"]["chemo"] - teacher["q1"]["chemo"])
    assert (top.teacher_score, top.student_score) == (-3.0, 730.0)
    assert (top.teacher_rank, top.student_rank, top.candidates) == (3, 1, 3)  # of equal scores the greater id first
    assert found.underrated[0].document_id == "yeast"
    assert found.underrated[0].gap < 0


def test_a_document_on_the_same_side_for_both_is_not_a_disagreement() -> None:
    """The student's long tail: far below its average where the teacher has it a little below its own."""
    teacher = {"q1": {"yeast": 1.0, "chemo": -0.4, "moon": -0.6}}
    student = {"q1": {"yeast": 3.0, "chemo": 2.0, "moon": -5.0}}
    found = disagreements(teacher, student, QRELS, DATA)
    assert [each.document_id for each in found.overrated] == ["chemo"] and found.underrated == ()


def test_scale_and_shift_of_a_model_do_not_matter() -> None:
    other = {query: {d: 0.01 * s + 5 for d, s in scores.items()} for query, scores in STUDENT.items()}
    first, second = (disagreements(TEACHER, run, QRELS, DATA) for run in (STUDENT, other))
    assert [each.document_id for each in first.overrated] == [each.document_id for each in second.overrated]
    assert first.overrated[0].gap == pytest.approx(second.overrated[0].gap)


def test_a_query_appears_once_in_each_list_and_count_bounds_them() -> None:
    found = disagreements(TEACHER, STUDENT, QRELS, DATA)
    assert sorted(each.query_id for each in found.overrated) == ["q1", "q2"]
    assert found.overrated[0].gap > found.overrated[1].gap
    assert len(disagreements(TEACHER, STUDENT, QRELS, DATA, count=1).overrated) == 1


def test_a_flat_list_does_not_become_one_of_large_differences() -> None:
    flat = {**TEACHER, "q2": {"copy": 1e-9, "other": 0.0}}
    assert disagreements(flat, STUDENT, QRELS, DATA).overrated[0].query_id == "q1"


def test_models_that_agree_have_no_disagreements() -> None:
    found = disagreements(TEACHER, {q: {d: 2 * s for d, s in x.items()} for q, x in TEACHER.items()}, QRELS, DATA)
    assert found.overrated == found.underrated == ()
    assert "No document is above average for the student and below it for the teacher" in shown(
        disagreements_section(found)
    )


def test_grades_and_shared_words_are_kept() -> None:
    found = disagreements(TEACHER, STUDENT, QRELS, DATA)
    assert found.overrated[0].grade is None
    assert found.underrated[0].grade == 2
    assert found.overrated[0].shared == pytest.approx(2 / 3)  # effects and body of effects, yeast, body
    # q1: yeast 1/3, chemo 2/3, moon 0; q2: copy 2/2, other 0
    assert found.usual == pytest.approx((1 / 3 + 2 / 3 + 0 + 1 + 0) / 5)


def test_the_section_marks_shared_words_and_shows_markup_as_text() -> None:
    result = disagreements(TEACHER, STUDENT, QRELS, DATA)
    assert comes_back(result)
    section = disagreements_section(result)
    html = "".join(block.html() for block in section.blocks)
    assert "<mark>effects</mark>" in html
    assert "side <mark>effect</mark> of &lt;script&gt;alert(1)" in html
    assert "on <mark>bodies</mark> &amp; minds" in html
    text = shown(section)
    assert "teacher #3 of 3 (−0." in text
    assert "relevant (2)" in text
    assert "not judged" in text


def test_shared_words_are_those_that_the_student_reads() -> None:
    """Of chemo the student reads "The side effect", of the query's words there is one; body comes later."""
    found = disagreements(TEACHER, STUDENT, QRELS, DATA, tokens_read=4)
    top = found.overrated[0]
    assert (top.document_id, top.text, found.words_read) == ("chemo", "The side effect", 3)
    assert top.shared == pytest.approx(1 / 3)
    # q1: yeast 1/3, chemo 1/3, moon 0; q2: "Copies files, one" 2/2, other 0
    assert found.usual == pytest.approx((1 / 3 + 1 / 3 + 0 + 1 + 0) / 5)
    assert comes_back(found)
    text = shown(disagreements_section(found))
    assert "counted in its first 3 words, about as much as the student reads" in text
    assert "33% of the query's words" in text and "bodies" not in text


def test_a_grade_below_the_level_is_not_relevant() -> None:
    found = disagreements(TEACHER, STUDENT, {"q1": {"yeast": 2, "chemo": 1}, "q2": {"copy": 1}}, DATA, at_least=2)
    text = shown(disagreements_section(found))
    assert "0 of 2 are judged relevant" in text
    assert "judged not relevant (1)" in text and "relevant (2)" in text
    passages = [block.good for block in disagreements_section(found).blocks if isinstance(block, Passage)]
    assert passages.count(True) == 1  # yeast alone


def test_only_documents_that_both_scored_count() -> None:
    student = {"q1": {"yeast": 1.0, "moon": 3.0, "unknown id": 99.0}, "q3": {"x": 1.0, "y": 2.0}}
    found = disagreements(TEACHER, student, QRELS, DATA)
    assert found.queries == 1
    assert [each.document_id for each in found.overrated] == ["moon"]
    assert found.overrated[0].candidates == 2


@pytest.mark.parametrize(
    ("teacher", "student", "message"),
    [
        ({}, STUDENT, "the teacher's run is empty; score"),
        (TEACHER, {}, "the student's run is empty; score"),
        (TEACHER, {"q1": {"yeast": 1.0}}, "no two documents of a query in common; score the same"),
        (TEACHER, {"q1": {"yeast": 1.0, "moon": 1.0}}, "the student gives every document of a query the same score"),
        (
            TEACHER,
            {"q1": {"yeast": math.nan, "moon": 1.0}},
            "student: the score of query 'q1', document 'yeast' is not",
        ),
        (
            {"q1": {"yeast": 1.0, "gone": 2.0}},
            {"q1": {"yeast": 2.0, "gone": 1.0}},
            "unknown id 'gone'; ids here look like",
        ),
    ],
)
def test_runs_that_cannot_be_compared_are_refused(teacher: Run, student: Run, message: str) -> None:
    with pytest.raises(LimbeckError, match=message):
        disagreements(teacher, student, QRELS, DATA)


def test_requesting_zero_is_refused() -> None:
    with pytest.raises(LimbeckError, match="ask for 1 or more"):
        disagreements(TEACHER, STUDENT, QRELS, DATA, count=0)


def test_terms_are_compared_by_stem_and_without_stop_words() -> None:
    words = Words()
    assert shared_stems(words, "the copied files", "copy the_file") == {"copi", "file"}
    assert shared_part(words, "the copied files of mine", "a file") == pytest.approx(1 / 3)
    assert shared_part(words, "the of", "the of") == 0
    assert marked(words, "Files & a FILE", {"file"}).html() == "<mark>Files</mark> &amp; a <mark>FILE</mark>"
