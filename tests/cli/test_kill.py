"""kill -9 of the real command, at random moments, until it is done."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time

import pytest
import yaml

from limbeck.matchers import MatcherSpec, build
from limbeck.stores import ScoreStore


def storm(command: list[str], kills: int, longest: float, seed: int) -> int:
    """Start the command and kill it `kills` times, then let it finish; how often it really was cut short."""
    chance = random.Random(seed)
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    cut = 0
    for _ in range(kills):
        process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(chance.uniform(0.3, 1) * longest)
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
            cut += 1
        process.wait()
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return cut


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "limbeck", *map(str, arguments)]


@pytest.mark.full
def test_distill_survives_a_storm_of_kills_and_ends_the_same(recipe, tmp_path):
    recipe["stages"][0] |= {"steps": 60, "checkpoint_seconds": 0}
    recipe["teacher"]["stages"][0] |= {"steps": 20, "checkpoint_seconds": 0}
    path = tmp_path / "recipe.yaml"
    path.write_text(yaml.safe_dump(recipe))
    began = time.monotonic()
    subprocess.run(
        command("distill", path, "--out", tmp_path / "whole"),
        check=True,
        capture_output=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    cut = storm(command("distill", path, "--out", tmp_path / "killed"), 8, time.monotonic() - began, seed=1)
    assert cut >= 3
    for part in ("student/model.safetensors", "teacher/model/model.safetensors", "recipe.yaml"):
        assert (tmp_path / "whole" / part).read_bytes() == (tmp_path / "killed" / part).read_bytes()
    whole, killed = (json.loads((tmp_path / name / "metrics.json").read_text()) for name in ("whole", "killed"))
    assert [row["measures"] for row in whole["rows"]] == [row["measures"] for row in killed["rows"]]
    assert {path.name for path in (tmp_path / "killed").iterdir()} == {
        path.name for path in (tmp_path / "whole").iterdir()
    }


@pytest.mark.full
def test_annotate_survives_a_storm_of_kills_and_scores_nothing_twice(beir, tiny_bert, tmp_path):
    build(MatcherSpec(kind="cross_encoder", start=tiny_bert, query_length=8, document_length=16)).save_pretrained(
        tmp_path / "teacher"
    )
    arguments = [tmp_path / "teacher", beir, "--split", "all", "--depth", 60]
    subprocess.run(command("annotate", *arguments, "--out", tmp_path / "whole"), check=True, capture_output=True)
    storm(command("annotate", *arguments, "--out", tmp_path / "killed"), 6, 8.0, seed=2)
    whole, killed = (ScoreStore.read(tmp_path / name) for name in ("whole", "killed"))
    assert len(killed) == len(whole) == sum(len(scores) for scores in killed.to_run().values())
    for query, scores in whole.to_run().items():
        assert killed.to_run()[query] == pytest.approx(scores, abs=1e-5)
