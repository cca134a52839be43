"""The examples run as docs/extending.md says, through the real command; tiny models replace MiniLM."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet as parquet
import pytest
import torch

from limbeck.matchers import build, matcher_config

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"


def limbeck(plugin: str | None, *arguments: object) -> subprocess.CompletedProcess[str]:
    """The command in a separate process: what a plugin registers does not reach other tests."""
    named = ["--plugin", f"examples/{plugin}.py"] if plugin else []
    command = [sys.executable, "-m", "limbeck", *named, *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, env={**os.environ}, capture_output=True, text=True, timeout=300)


def distilled(name: str, folder: Path, tiny_bert: str, *settings: str) -> Path:
    """The run of an example's recipe, shortened to a few steps of a tiny model."""
    short = ["stages.0.steps=4", "student.layers=1", f"student.init_from={tiny_bert}", *settings]
    changes = [part for setting in short for part in ("--set", setting)]
    done = limbeck(name, "distill", f"examples/{name}.yaml", "--out", folder, *changes)
    assert done.returncode == 0, done.stderr
    return folder


def scored(name: str, run: Path) -> np.ndarray:
    out = run.parent / "scores"
    done = limbeck(name, "score", run, "examples/pairs.csv", "--out", out, "--workers", "1")
    assert done.returncode == 0, done.stderr
    return np.concatenate([parquet.read_table(path)["score"].to_numpy() for path in sorted(out.glob("scores/*"))])


@pytest.fixture
def teacher(tiny_bert: str, tmp_path: Path) -> Path:
    """A dual encoder with embeddings of 24 numbers."""
    torch.manual_seed(0)
    build(matcher_config(init_from=tiny_bert, dim=24, query_length=16, document_length=32)).save_pretrained(
        tmp_path / "teacher"
    )
    return tmp_path / "teacher"


def test_an_objective_trains_a_projection_that_becomes_a_part_of_the_student(tiny_bert, teacher, tmp_path):
    run = distilled("match_directions", tmp_path / "run", tiny_bert, f"teacher.model={teacher}", "student.dim=8")
    assert (run / "teacher" / "embeddings").is_dir()
    log = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
    losses = [line["objectives"]["match_directions"] for line in log if "objectives" in line]
    assert losses and all(np.isfinite(losses))
    from limbeck import load  # the student needs no plugin: it is a plain dual encoder

    student = load(run)
    assert student.encode_query(["sort a list"]).shape == (1, 24)
    found = scored("match_directions", run)
    assert found == pytest.approx(student.score(pairs()), abs=1e-4)


def test_an_interaction_and_its_architecture_are_trained_saved_loaded_and_scored(tiny_bert, tmp_path):
    run = distilled("smooth_colbert", tmp_path / "run", tiny_bert, "student.dim=8", "student.sharpness=7")
    facts = json.loads((run / "student" / "limbeck.json").read_text())
    assert facts["kind"] == "smooth_colbert"
    assert (facts["interaction"], facts["arguments"]) == ("smooth_maxsim", {"sharpness": 7.0})
    assert (run / "student" / "modules.json").exists()
    found = scored("smooth_colbert", run)
    assert found.shape == (6,) and found == pytest.approx(smooth_scores(run / "student", 7.0), abs=1e-4)
    without = limbeck(None, "score", run, "examples/pairs.csv", "--out", tmp_path / "other")
    assert without.returncode == 2
    assert "is a 'smooth_colbert', a kind that limbeck does not know; install the plugin" in without.stderr


def test_an_analysis_is_asked_for_by_a_recipe_drawn_and_added_later(tiny_bert, teacher, tmp_path):
    run = distilled("teachers_first", tmp_path / "run", tiny_bert, f"teacher.model={teacher}")
    found = json.loads((run / "analyses" / "teachers_first.json").read_text())
    assert found["queries"] == sum(found["ranks"].values()) == 16
    assert "puts the teacher&#x27;s first document first for" in (run / "report.html").read_text()
    assert scored("teachers_first", run).shape == (6,)
    (run / "analyses" / "teachers_first.json").unlink()
    done = limbeck("teachers_first", "report", run, "--add", "teachers_first")
    assert done.returncode == 0, done.stderr
    assert json.loads((run / "analyses" / "teachers_first.json").read_text()) == found
    helped = limbeck("teachers_first", "report", "--help").stdout
    assert "where the student puts the document that the teacher ranks first" in " ".join(helped.split())


def pairs() -> list[tuple[str, str]]:
    lines = (EXAMPLES / "pairs.csv").read_text().splitlines()[1:]
    return [(left, right.strip('"')) for left, right in (line.split(",", 1) for line in lines)]


def smooth_scores(folder: Path, sharpness: float) -> list[float]:
    """The formula in numpy, over the token vectors that sentence-transformers gives."""
    from sentence_transformers import MultiVectorEncoder

    model = MultiVectorEncoder(str(folder))
    scores = []
    for left, right in pairs():
        query, document = model.encode_query([left])[0], model.encode_document([right])[0]
        similar = np.asarray(query, dtype=np.float64) @ np.asarray(document, dtype=np.float64).T
        weights = np.exp(sharpness * similar)
        scores.append(float(((weights / weights.sum(1, keepdims=True)) * similar).sum()))
    return scores
