"""Quality kept against the cost of a query, worked out by hand."""

from __future__ import annotations

import re
from html import unescape

import numpy as np
import pytest

from limbeck.errors import LimbeckError
from limbeck.evaluation import RankingResult
from limbeck.report.analyses import QueryCosts, query_costs, query_costs_section
from limbeck.report.analyses.measured_run import MeasuredModel

RESULT = RankingResult(("q",), {"ndcg@10": np.ones(1)}, 0, 0)


def model(name: str, role: str, search: float, ms: float | None, parameters: int | None, **more: float):
    measures = {"ndcg@10": 0.5, "search ndcg@10": search} | more
    return MeasuredModel(name, role, measures, RESULT, {}, query_ms=ms, query_parameters=parameters)


TEACHER = model("teacher", "teacher", 0.8, 12.0, 22_000_000)
MODELS = [
    TEACHER,
    model("BM25", "baseline", 0.4, None, None),
    model("two layers", "student", 0.78, 4.0, 15_000_000),
    model("static", "student", 0.76, 0.05, 12_000_000),
    model("one layer", "student", 0.6, 2.0, 13_000_000),
]


def page(found: QueryCosts) -> str:
    return unescape("".join(block.html() for block in query_costs_section(found).blocks))


def test_shares_are_of_the_teachers_search_and_models_that_encode_no_query_are_left_out():
    found = query_costs(TEACHER, MODELS)
    assert found.measure == "search ndcg@10"
    kept = {each.name: each.kept for each in found.models}
    assert kept == pytest.approx({"teacher": 1.0, "two layers": 0.975, "static": 0.95, "one layer": 0.75})
    assert QueryCosts.model_validate_json(found.model_dump_json()) == found


def test_the_fastest_that_keeps_most_is_named_and_both_costs_are_drawn():
    html = page(query_costs(TEACHER, MODELS))
    assert "static keeps 95% of teacher's search nDCG@10 and encodes a query 240 times as fast" in html
    assert "the fastest query encoder that keeps at least 95%" in html
    pictures = re.findall(r'aria-label="([^"]*)"', html)
    assert any("milliseconds to encode a query" in each and "static at 0.05, 95" in each for each in pictures)
    assert any("million parameters" in each and "two layers at 15, 97.5" in each for each in pictures)


def test_if_none_keeps_enough_the_best_is_named():
    html = page(query_costs(TEACHER, [TEACHER, MODELS[-1]]))
    assert "one layer keeps 75%" in html and "No query encoder keeps 95%." in html


def test_a_teacher_that_only_re_ranks_is_compared_in_re_ranking():
    cross = MeasuredModel("cross", "teacher", {"ndcg@10": 0.625}, RESULT, {})
    found = query_costs(cross, [cross, MODELS[2]])
    assert found.measure == "ndcg@10" and found.models[0].kept == pytest.approx(0.8) and found.teacher_ms is None
    assert "times as fast" not in page(found)


def test_without_a_students_cost_there_is_nothing_to_draw():
    with pytest.raises(LimbeckError, match="no student encodes a query by itself"):
        query_costs(TEACHER, MODELS[:2])
    with pytest.raises(LimbeckError, match="no share of it can be kept"):
        query_costs(model("t", "teacher", 0.0, 1.0, 1), MODELS)
