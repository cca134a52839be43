"""Trackers: what tensorboard reads back is what the log says, also after a kill; no tracker changes a run."""

from __future__ import annotations

import json
import shutil
import sys
from collections import defaultdict
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
import torch
from transformers.integrations import integration_utils

import limbeck as lb
from limbeck.errors import LimbeckError
from limbeck.training import tracker_choice, trackers
from limbeck.training.tracker_choice import TRACKERS, asked_trackers, using_trackers
from tests.training.test_trainer import STAGE, killed_at
from tests.training.toy import train, weights

pytest.importorskip("tensorboard", reason="needs the extra dev")

Curves = dict[str, list[tuple[int, float]]]


def shown_in(folder: Path) -> Curves:
    """The curves of a folder of event files, as tensorboard draws them."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found = EventAccumulator(str(folder))
    found.Reload()
    return {tag: [(event.step, event.value) for event in found.Scalars(tag)] for tag in found.Tags()["scalars"]}


def logged_in(log: Path, model: str, stage: int = 0) -> Curves:
    """The same curves, by the run's own log."""
    curves: Curves = defaultdict(list)
    for entry in map(json.loads, log.read_text().splitlines()):
        if (entry["model"], entry["stage"]) != (model, stage):
            continue
        values = {f"train/objective/{name}": value for name, value in entry.get("objectives", {}).items()}
        values |= {f"eval/{name}": value for name, value in entry.get("dev", {}).items()}
        values |= {"train/loss": entry["loss"], "train/learning_rate": entry["lr"]} if "loss" in entry else {}
        for tag, value in values.items():
            curves[tag].append((entry["step"], pytest.approx(value, rel=1e-6)))
    return curves


def test_tensorboard_shows_losses_by_objective_and_dev_measures_of_every_stage(recipe, tmp_path):
    stage = recipe["stages"][0]
    recipe["stages"] = [stage, {**stage, "objectives": ["softmax_ce", "0.5 * one_hot"]}]
    lb.distill(recipe, tmp_path / "run", report_to=["tensorboard"])
    tracking, log = tmp_path / "run" / "tracking", tmp_path / "run" / "log.jsonl"
    names = {path.parent.relative_to(tracking).as_posix() for path in tracking.rglob("events.*")}
    assert names == {"teacher/stage-1", "student/stage-1", "student/stage-2"}
    for name in names:
        model, number = name.split("/stage-")
        shown, logged = shown_in(tracking / name), logged_in(log, model, int(number) - 1)
        assert {tag: shown[tag] for tag in logged} == logged
        assert "train/loss" in logged and "eval/ndcg@10" in logged
    assert {"train/objective/softmax_ce", "train/objective/one_hot"} <= set(shown_in(tracking / "student/stage-2"))


def test_a_tracker_changes_no_number_of_a_run(recipe, tmp_path):
    plain = lb.distill(recipe, tmp_path / "plain")
    tracked = lb.distill(recipe, tmp_path / "tracked", report_to=["tensorboard"])
    assert [row.measures for row in plain.rows] == [row.measures for row in tracked.rows]
    for name in ("student/model.safetensors", "recipe.yaml", "log.jsonl"):
        assert (tmp_path / "plain" / name).read_bytes() == (tmp_path / "tracked" / name).read_bytes(), name


@pytest.mark.parametrize("checkpoint_seconds", [0, 1000])  # it goes on at a checkpoint, or starts again
def test_a_resumed_run_shows_every_step_once(tiny_bert, tmp_path, monkeypatch, checkpoint_seconds):
    with using_trackers(["tensorboard"]):
        stage = STAGE.model_copy(update={"checkpoint_seconds": checkpoint_seconds})
        killed_at(5, monkeypatch, tiny_bert, tmp_path, stage)
        shutil.rmtree(tmp_path / "student-stage-0" / "checkpoint-5", ignore_errors=True)  # step 5 is trained again
        train(tiny_bert, tmp_path, STAGE)
    folder = tmp_path / "tracking" / "student" / "stage-1"
    assert len(list(folder.iterdir())) == 2
    shown, logged = shown_in(folder), logged_in(tmp_path / "log.jsonl", "student")
    assert {tag: shown[tag] for tag in logged} == logged
    assert [at for at, _ in shown["train/loss"]] == list(range(1, STAGE.steps + 1))


def test_a_run_resumes_with_or_without_its_tracker(tiny_bert, tmp_path, monkeypatch):
    whole = train(tiny_bert, tmp_path / "whole", STAGE)
    for place, before, after in (("on", [], ["tensorboard"]), ("off", ["tensorboard"], [])):
        with using_trackers(before):
            killed_at(5, monkeypatch, tiny_bert, tmp_path / place)
        with using_trackers(after):
            assert torch.equal(weights(train(tiny_bert, tmp_path / place, STAGE)), weights(whole))
    assert [at for at, _ in shown_in(tmp_path / "on/tracking/student/stage-1")["train/loss"]] == [6, 7, 8]


def test_a_sweep_has_a_folder_for_each_student(recipe, tmp_path):
    lb.sweep(recipe, ["objective=one_hot,softmax_ce"], out=tmp_path / "sweep", report_to=["tensorboard"])
    tracking = tmp_path / "sweep" / "tracking"
    assert {path.name for path in tracking.iterdir()} == {"teacher", "one-hot", "softmax-ce"}


def test_a_tracker_is_used_inside_its_block_and_named_once():
    with using_trackers(["tensorboard", "tensorboard"]), using_trackers([]):
        assert asked_trackers() == ("tensorboard",)
    assert asked_trackers() == ()


@pytest.mark.parametrize("name", TRACKERS)
def test_a_missing_package_is_named_with_the_way_to_get_it(name, recipe, tmp_path, monkeypatch):
    monkeypatch.setattr(tracker_choice, "find_spec", lambda _: None)
    with pytest.raises(LimbeckError, match=f"--report-to {name}: .* not installed; run `pip install {name}`"):
        lb.distill(recipe, tmp_path / "run", report_to=[name])
    assert not (tmp_path / "run").exists()


def test_an_unknown_tracker_is_refused(recipe, tmp_path):
    with pytest.raises(LimbeckError, match="--report-to tensorbord: no such tracker; did you mean 'tensorboard'"):
        lb.distill(recipe, tmp_path / "run", report_to=["tensorbord"])


def stand_in(monkeypatch: pytest.MonkeyPatch, **parts: object) -> ModuleType:
    """A package in the place of wandb, which is not installed here."""
    package = ModuleType("wandb")
    vars(package).update({"run": None, "config": {}, "finish": lambda: None, **parts})
    monkeypatch.setitem(sys.modules, "wandb", package)
    monkeypatch.setitem(sys.modules, "wandb.sdk.lib.config_util", SimpleNamespace(ConfigError=KeyError))
    monkeypatch.setattr(tracker_choice, "find_spec", lambda _: True)
    monkeypatch.setattr(integration_utils, "is_wandb_available", lambda: True)
    return package


def test_a_tracker_that_fails_is_named_once_and_the_training_goes_on(tiny_bert, tmp_path, monkeypatch):
    def no_key(**_: object) -> None:
        raise RuntimeError("no API key configured\nlog in first")

    said: list[str] = []
    stand_in(monkeypatch, init=no_key)
    monkeypatch.setattr(trackers, "say", said.append)
    with using_trackers(["wandb"]):
        found = train(tiny_bert, tmp_path / "tracked", STAGE)
    assert torch.equal(weights(found), weights(train(tiny_bert, tmp_path / "plain", STAGE)))
    assert said == ["warning: wandb failed (no API key configured); the training goes on without it"]


@pytest.mark.parametrize("users_own", [False, True])
def test_a_run_of_a_tracker_ends_with_its_stage_unless_the_caller_began_it(tiny_bert, tmp_path, monkeypatch, users_own):
    done: list[str] = []
    package = stand_in(monkeypatch, log=lambda values: done.append("log"), define_metric=None)

    def init(name: str, **_: object) -> None:
        done.append(name)
        package.run = SimpleNamespace(summary={}, _label=lambda code: None)
        package.config = SimpleNamespace(update=lambda *args, **kwargs: None)

    def finish() -> None:
        done.append("finish")
        package.run = None

    package.init, package.finish = init, finish
    if users_own:
        init("mine")
    with using_trackers(["wandb"]):
        train(tiny_bert, tmp_path / "mine", STAGE)
    logs = done.count("log")
    assert logs >= STAGE.steps
    assert done == (["mine"] + ["log"] * logs if users_own else ["mine/student"] + ["log"] * logs + ["finish"])
