"""Kill -9 at random moments of `limbeck compress`: the next call goes on and ends with the same students."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from pathlib import Path

import pytest

from limbeck.runs.compress import ladder
from tests.attack.forked import FEWEST, finish_forked, fork
from tests.runs.compress.conftest import dual, few_steps  # noqa: F401  (fixtures)
from tests.training.conftest import beir  # noqa: F401  (fixture)

pytestmark = pytest.mark.full
KILLS = 3


def students(out: Path) -> dict[str, bytes]:
    """The weights of all students that are there, by their places."""
    return {str(path.relative_to(out)): path.read_bytes() for path in (out / "students").rglob("*.safetensors")}


def measures(out: Path) -> dict[str, dict[str, float]]:
    return {row["name"]: row["measures"] for row in json.loads((out / "metrics.json").read_text())["rows"]}


def test_compress_survives_kills_and_ends_with_the_same_students(dual, beir, tmp_path, few_steps, monkeypatch):  # noqa: F811
    monkeypatch.setattr(ladder, "AS_FAST", 0.0)  # no student is stopped, so that times do not matter
    arguments = ["compress", dual, beir, "--minutes", 60, "--out"]
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    seconds, chance, hits = finish_forked(*arguments, whole), random.Random(5), 0
    for _ in range(KILLS):
        child = fork(*arguments, killed)
        time.sleep(chance.uniform(FEWEST, seconds / 2))
        os.kill(child, signal.SIGKILL)
        hits += os.WIFSIGNALED(os.waitpid(child, 0)[1])
    finish_forked(*arguments, killed)
    assert hits >= 1
    assert students(killed) == students(whole) and len(students(whole)) >= 4
    assert measures(killed) == measures(whole)
    names = {path.name for path in killed.rglob("*")}
    assert "work" not in names and not any(name.endswith((".partial", ".new")) for name in names)
    assert {path.name for path in killed.iterdir()} == {path.name for path in whole.iterdir()}
