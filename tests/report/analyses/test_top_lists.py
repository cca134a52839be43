import math

import pytest

from limbeck.errors import LimbeckError
from limbeck.report.analyses import average_overlap, top_lists, top_lists_section
from tests.report.analyses.helpers import comes_back, ranking_data, shown

DOCUMENTS = "abcdef"
DATA = ranking_data({f"q{n}": f"query <{n}>" for n in (1, 2, 3)}, {d: f"text of {d} & more" for d in DOCUMENTS})
QRELS = {"q1": {"a": 1, "b": 0}, "q2": {"c": 2}}


def best_first(order: str) -> dict[str, float]:
    return {document: -float(rank) for rank, document in enumerate(order)}


RUNS = {
    "one": {"q1": best_first("abcdef"), "q2": best_first("abc"), "q3": best_first("abcdef")},
    "two": {"q1": best_first("abcdef"), "q2": best_first("def"), "q3": best_first("bacdef")},
}


def test_average_overlap_by_hand() -> None:
    assert average_overlap("abc", "abc", 3) == 1
    assert average_overlap("abc", "def", 3) == 0
    assert average_overlap("abc", "bad", 3) == pytest.approx((0 + 2 / 2 + 2 / 3) / 3)
    assert average_overlap("ab", "ba", 5) == pytest.approx((0 + 1) / 2)  # the lists end at two


def test_the_most_different_queries_come_first() -> None:
    result = top_lists(RUNS, QRELS, DATA, queries=2, k=3)
    assert [query.query_id for query in result.queries] == ["q2", "q3"]
    assert result.queries[1].alike == pytest.approx((0 + 1 + 1) / 3)
    assert result.compared == 3
    assert comes_back(result)


def test_entries_hold_grade_score_text_and_the_place_in_the_other_list() -> None:
    (query,) = top_lists(RUNS, QRELS, DATA, queries=["q1"], k=3).queries
    first, second = query.lists
    assert [(found.id, found.grade, found.elsewhere) for found in first] == [("a", 1, 1), ("b", 0, 2), ("c", None, 3)]
    assert first[0].score == 0
    assert first[0].text == "text of a & more"
    assert second == first
    (other,) = top_lists(RUNS, QRELS, DATA, queries=["q2"], k=3).queries
    assert {found.elsewhere for found in other.lists[0]} == {None}


def test_the_section_marks_what_was_judged_and_counts_what_was_not() -> None:
    result = top_lists(RUNS, QRELS, DATA, queries=["q1", "q2"], k=3)
    assert (result.unjudged(0), result.unjudged(1)) == (3, 4)
    section = top_lists_section(result)
    text = shown(section)
    assert "Nobody judged 3 of the 6 that one found and 4 of the 6 that two found" in text
    assert "query <1>" in text
    assert "relevant, #1 of two" in text
    assert "judged not relevant, #2 of two" in text
    html = "".join(block.html() for block in section.blocks)
    assert html.count('class="highlighted"') == 3  # a twice for q1, c once for q2


def test_the_grade_that_counts_as_relevant_can_be_raised() -> None:
    result = top_lists(RUNS, {"q1": {"a": 1}}, DATA, queries=["q1"], k=1, at_least=2)
    assert "judged not relevant" in shown(top_lists_section(result))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"runs": {"one": RUNS["one"]}}, "compare two models, not 1"),
        ({"runs": {"one": RUNS["one"], "two": {}}}, "one and two ranked no query in common"),
        ({"runs": {"one": {"q1": {"a": math.nan}}, "two": RUNS["two"]}}, "one: the score of query 'q1', document 'a'"),
        ({"runs": {"one": {"q1": {"z": 1.0}}, "two": RUNS["two"]}}, "unknown id 'z'"),
        ({"qrels": {"other": {"a": 1}}}, "none of the ranked queries is judged"),
        ({"queries": ["q9"]}, "query 'q9' is not ranked by both models"),
        ({"queries": 0}, "ask for 1 or more"),
        ({"k": 0}, "use k of 1 or more"),
    ],
)
def test_what_cannot_be_shown_is_refused(change: dict, message: str) -> None:
    with pytest.raises(LimbeckError, match=message):
        top_lists(**{"runs": RUNS, "qrels": QRELS, "data": DATA, **change})
