"""Attacks on what annotate, distill and sweep do over minutes: kill -9 at random moments, changed bytes on resume.

A model's folder (`teacher/model`, `student`) has an attack of its own, with the models.
"""

from __future__ import annotations

import json
import random
import shutil
from collections import Counter
from pathlib import Path

import pytest
import yaml

import limbeck as lb
from limbeck.errors import LimbeckError
from limbeck.matchers import build, matcher_config
from limbeck.runs import ranking_bench
from limbeck.runs.sweep import sweep
from limbeck.stores import ScoreStore
from limbeck.training import trainer as trainer_module
from tests.attack.harness import FLIPS, ROUNDS, damage, detected, finish, kill_and_finish, run
from tests.training.conftest import beir, recipe  # noqa: F401  (fixtures)

pytestmark = pytest.mark.full
REAL = 5  # of the flips go through the command itself, which costs seconds of imports


def same_results(whole: Path, other: Path) -> None:
    """Weights, tables and files of two runs are equal, times aside."""
    for part in ("student/model.safetensors", "teacher/model/model.safetensors", "recipe.yaml"):
        assert (whole / part).read_bytes() == (other / part).read_bytes(), part
    one, two = (json.loads((folder / "metrics.json").read_text()) for folder in (whole, other))
    assert [row["measures"] for row in one["rows"]] == [row["measures"] for row in two["rows"]]
    assert {path.name for path in whole.iterdir()} == {path.name for path in other.iterdir()}


@pytest.fixture
def long_recipe(recipe):  # noqa: F811
    """Two stages with a checkpoint at every step, and all baselines."""
    recipe["teacher"]["stages"][0] |= {"steps": 12, "checkpoint_seconds": 0}
    stage = recipe["stages"][0] | {"steps": 16, "checkpoint_seconds": 0, "eval_every": 4}
    recipe["stages"] = [stage, stage]
    recipe["evaluation"]["baselines"] = ["bm25", "start"]
    return recipe


@pytest.fixture
def recipe_file(long_recipe, tmp_path):
    path = tmp_path / "recipe.yaml"
    path.write_text(yaml.safe_dump(long_recipe))
    return path


def test_distill_survives_kills_and_ends_the_same(recipe_file, tmp_path):
    _, seconds = finish("distill", recipe_file, "--out", tmp_path / "whole")
    chance = random.Random(1)
    hits = kill_and_finish(
        "distill", recipe_file, "--out", tmp_path / "killed", within=seconds / 2, chance=chance, kills=ROUNDS
    )
    assert hits >= ROUNDS // 4
    same_results(tmp_path / "whole", tmp_path / "killed")


def test_a_sweep_survives_kills_and_ends_the_same(recipe_file, tmp_path):
    arguments = ["sweep", recipe_file, "--over", "stages.0.lr=1e-2,1e-3", "--seeds", 2, "--out"]
    _, seconds = finish(*arguments, tmp_path / "whole")
    chance = random.Random(2)
    hits = kill_and_finish(*arguments, tmp_path / "killed", within=seconds / 2, chance=chance, kills=ROUNDS)
    assert hits >= ROUNDS // 4
    same_results(tmp_path / "whole", tmp_path / "killed")


def test_annotate_survives_kills_and_scores_nothing_twice(beir, tiny_bert, tmp_path):  # noqa: F811
    spec = matcher_config(kind="cross_encoder", start=tiny_bert, query_length=8, document_length=16)
    build(spec).save_pretrained(tmp_path / "teacher")
    arguments = ["annotate", tmp_path / "teacher", beir, "--split", "all", "--depth", 60, "--out"]
    _, seconds = finish(*arguments, tmp_path / "whole")
    kill_and_finish(*arguments, tmp_path / "killed", within=seconds / 2, chance=random.Random(3), kills=ROUNDS)
    whole, killed = (ScoreStore.read(tmp_path / name) for name in ("whole", "killed"))
    assert len(killed) == len(whole) == sum(len(scores) for scores in killed.to_run().values())
    for query, scores in whole.to_run().items():
        assert killed.to_run()[query] == pytest.approx(scores, abs=1e-5)


def cut_short(monkeypatch, when: str) -> None:
    """Stop a run as a kill would: in the middle of the second stage, or before the student is measured."""
    step, model = trainer_module.DistillationTrainer.training_step, ranking_bench.RankingBench.model

    def training_step(self, *given, **named):
        if when == "training" and (self.run_log.stage, self.state.global_step) == (1, 10):
            raise KeyboardInterrupt
        return step(self, *given, **named)

    def measure(self, name, *given):
        if when == "measuring" and name == "student":
            raise KeyboardInterrupt
        return model(self, name, *given)

    monkeypatch.setattr(trainer_module.DistillationTrainer, "training_step", training_step)
    monkeypatch.setattr(ranking_bench.RankingBench, "model", measure)


def files_of(folder: Path) -> list[Path]:
    """What is attacked: all but the folders of models, and the page that is only looked at."""
    found = sorted(path.relative_to(folder) for path in folder.rglob("*") if path.is_file() and path.stat().st_size)
    models = (Path("teacher/model"), Path("student"))
    return [path for path in found if not any(path.is_relative_to(model) for model in models)]


@pytest.mark.parametrize("when", ["training", "measuring", "finished"])
def test_a_changed_byte_in_a_run_is_detected_or_harmless(long_recipe, recipe_file, tmp_path, monkeypatch, when):
    whole, attacked, outcomes = tmp_path / "whole", tmp_path / "attacked", Counter[str]()
    lb.distill(long_recipe, whole)
    if when != "finished":
        with monkeypatch.context() as cut, pytest.raises(KeyboardInterrupt):
            cut_short(cut, when)
            lb.distill(long_recipe, attacked)
        attacked.rename(tmp_path / "original")
    else:
        shutil.copytree(whole, tmp_path / "original")
    chance, files = random.Random(when), files_of(tmp_path / "original")
    for number in range(FLIPS):
        shutil.rmtree(attacked, ignore_errors=True)
        shutil.copytree(tmp_path / "original", attacked)
        done = damage(attacked / (file := chance.choice(files)), chance)
        try:
            if number < REAL:
                refused = detected(run("distill", recipe_file, "--out", attacked))
            else:
                refused = refuses(long_recipe, attacked)
            outcomes["detected" if refused else "harmless"] += 1
            if not refused:
                same_results(whole, attacked)
        except Exception as error:
            raise AssertionError(f"{file}: {done}") from error
    print(f"\n{when}: {FLIPS} changed files, {dict(outcomes)}")


def refuses(recipe: dict, folder: Path) -> bool:  # noqa: F811
    """Whether a run is refused."""
    try:
        lb.distill(recipe, folder)
    except LimbeckError:
        return True
    return False


def test_a_changed_byte_in_a_sweep_is_detected_or_harmless(long_recipe, tmp_path, monkeypatch):
    whole, attacked, outcomes = tmp_path / "whole", tmp_path / "attacked", Counter[str]()
    axes = ["stages.0.lr=1e-2,1e-3"]
    sweep(long_recipe, axes, out=whole)
    shutil.copytree(whole, tmp_path / "original")
    (tmp_path / "original" / "metrics.json").unlink()  # as if it was killed before its table
    chance, files = random.Random(4), files_of(tmp_path / "original")
    files = [path for path in files if "student" not in path.parts]
    for _ in range(FLIPS):
        shutil.rmtree(attacked, ignore_errors=True)
        shutil.copytree(tmp_path / "original", attacked)
        done = damage(attacked / (file := chance.choice(files)), chance)
        try:
            rows = sweep(long_recipe, axes, out=attacked).rows
            outcomes["detected" if any(row.failed for row in rows) else "harmless"] += 1
            if not any(row.failed for row in rows):
                same_results(whole, attacked)
        except LimbeckError:
            outcomes["detected"] += 1
        except Exception as error:
            raise AssertionError(f"{file}: {done}") from error
    print(f"\nsweep: {FLIPS} changed files, {dict(outcomes)}")
