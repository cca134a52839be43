"""What a run tells its user to do next."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from limbeck.runs.compress.advice import Use, advice
from limbeck.runs.compress.limits import Limits
from limbeck.runs.compress.verdict import Level, Verdict
from tests.runs.compress.test_front import offer

RUN = Path("runs/small")
WIN = Verdict(Level.WIN, 0.9, 2.0, "BM25", 0.01, "why")
STUDENT = offer("static", 0.72, 2, size=1536)


def use(**other) -> Use:
    given = {"searches": True, "keeps_documents": True, "train_queries": 5000, "labelled": 5000, **other}
    return Use(RUN, "my-data", given.pop("runtime", "torch"), **given)


def remedies(limits: Limits, notes=None, **other) -> list[str]:
    return advice(STUDENT, False, use(**other), WIN, limits, notes or {})[1:-1]


@pytest.mark.parametrize(
    ("limits", "other", "words"),
    [
        (Limits(keep=0.95), {}, "deeper student"),
        (Limits(keep=0.95), {"train_queries": 300}, "300 training queries: more of them help"),
        (Limits(keep=0.95), {"labelled": 0}, "Labels of 200 training queries or more help"),
        (Limits(keep=0.95), {"notes": {"3 layers": "not tried: no time left"}}, "more --minutes"),
        (Limits(ms=1), {}, "--threads"),
        (Limits(bytes=1000), {}, "sq8"),
    ],
)
def test_what_would_help_fits_what_is_missing(limits, other, words):
    found = remedies(limits, **other)
    assert any(words in line for line in found), found
    without = remedies(Limits(keep=0.95) if limits.keep is None else Limits(ms=1))
    assert not any(words in line for line in without)


def test_labels_do_not_help_students_that_learn_scores():
    assert not any("Labels" in line for line in remedies(Limits(keep=0.95), labelled=0, searches=False))


def how(**other) -> str:
    (line,) = advice(STUDENT, True, use(**other), WIN, Limits(), {})
    return line


def test_the_next_command_is_one_that_works(tmp_path):
    assert "limbeck search INDEX --encoder runs/small/student QUERY" in how()
    assert "limbeck search INDEX --encoder runs/small/student --runtime int8 QUERY" in how(runtime="int8")
    for own in ({"keeps_documents": False}, {"length": 64}):  # an index of the teacher has longer documents
        assert how(**own) == "Index with it: limbeck index runs/small/student my-data --out INDEX"
    assert "limbeck evaluate runs/small/student my-data --task rerank" in how(searches=False)
    assert "limbeck search INDEX" in how(vectors="mine.npy", length=64)
    (tmp_path / "index.json").write_text(json.dumps({}))
    assert f"limbeck search {tmp_path} --encoder" in how(vectors=str(tmp_path))
