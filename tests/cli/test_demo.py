"""`limbeck demo` with a tiny teacher and tiny data."""

from __future__ import annotations

import json

import pytest

from tests.runs.compress.conftest import dual, few_steps  # noqa: F401  (fixtures)
from tests.training.conftest import beir  # noqa: F401  (fixture)


@pytest.fixture
def small(dual, beir, few_steps, monkeypatch):  # noqa: F811
    monkeypatch.setattr("limbeck.cli.demo.TEACHER", str(dual))
    monkeypatch.setattr("limbeck.cli.demo.DATA", str(beir))
    monkeypatch.setattr("limbeck.cli.demo.LENGTH", 16)


def test_the_demo_shows_answers_the_table_and_the_verdict(limbeck, small, tmp_path):
    done = limbeck("demo", "--out", tmp_path / "run")
    assert done.code == 0
    places = [
        done.out.index(text) for text in ("how do I sort a list by a key?", "ndcg@10", "VERDICT: ", "minutes. Next:")
    ]
    assert places == sorted(places)
    answers = done.out[: done.out.index("ndcg@10")].splitlines()
    assert sum(line.startswith("  teacher ") for line in answers) == 3
    page = (tmp_path / "run" / "report.html").read_text()
    assert page.index("<h2>The front</h2>") < page.index("how do I sort a list by a key")

    again = limbeck("demo", "--out", tmp_path / "run", "--json")
    found = json.loads(again.out)
    assert found["examples"][0]["query"] == "how do I sort a list by a key"
    assert {row["name"] for row in found["rows"]} >= {"teacher", "BM25", "static"}
