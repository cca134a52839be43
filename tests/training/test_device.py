"""Training, scoring jobs and generators follow the device that was chosen; `meta` stands in for a GPU."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

import limbeck as lb
from limbeck.errors import LimbeckError
from limbeck.matchers import build, device_choice, matcher_config
from limbeck.matchers.device import chosen_device
from limbeck.matchers.device_choice import using_device
from limbeck.recipe.stage import Stage
from limbeck.runs import run as run_module
from limbeck.scoring.engine import engine_named
from limbeck.scoring.local import LocalEngine
from limbeck.scoring.worker import Worker
from limbeck.search.doc2query import QueryGenerator
from limbeck.training.batches import Collator
from limbeck.training.log import RunLog
from limbeck.training.teachers import CachedTeacher
from limbeck.training.trainer import DistillationTrainer
from tests.search.seq2seq import write_t5
from tests.training.toy import ToyLists, tiny_student


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(device_choice, "NAMES", r"cpu|cuda|meta")
    return "meta"


def trainer(start: str, folder: Path, live: bool) -> DistillationTrainer:
    student = tiny_student(start)
    teacher = tiny_student(start, "dipair", tokens=[2, 2], dim=16) if live else None
    cached = None if live else CachedTeacher(frozenset({"scores"}))
    stage = Stage(objectives=["softmax_ce"], steps=2, batch_size=4)
    collator = Collator(ToyLists(), student, cached=cached)
    return DistillationTrainer(
        student, stage, collator, folder, 2, 2, seed=0, log=RunLog(folder / "log.jsonl", "student", 0), teacher=teacher
    )


@pytest.mark.parametrize("live", [False, True])
def test_student_teacher_and_batches_are_on_the_device(tiny_bert: str, tmp_path: Path, fake: str, live: bool) -> None:
    with using_device(fake):
        made = trainer(tiny_bert, tmp_path, live)
        assert made.args.device.type == made.accelerator.device.type == fake and not made.args.use_cpu
    assert {parameter.device.type for parameter in made.student.parameters()} == {fake}
    if made.live_teacher is not None:
        assert made.live_teacher.device.type == fake
    batch = made._prepare_inputs(made.data_collator([(0, 0), (0, 1)]))["batch"]
    assert batch.targets.mask.device.type == fake
    assert batch.student.queries.passes[0]["input_ids"].device.type == fake


def test_by_default_training_is_on_the_cpu_here(tiny_bert: str, tmp_path: Path) -> None:
    made = trainer(tiny_bert, tmp_path, live=False)
    assert made.args.use_cpu and made.args.device.type == "cpu" and made.args.n_gpu == 0


def test_a_missing_device_is_refused_before_anything_is_written(recipe: dict, tmp_path: Path) -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    for run in (lb.distill, lb.sweep):
        with pytest.raises(LimbeckError, match="device cuda: torch sees no GPU; use cpu"):
            run({**recipe, "device": "cuda"}, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_run_follows_its_recipe_and_its_caller_comes_first(
    recipe: dict, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fake: str
) -> None:
    seen: list[str] = []
    monkeypatch.setattr(run_module, "start_processes", lambda: seen.append(str(chosen_device())) or 1 / 0)
    for device in (None, "cpu"):
        with pytest.raises(ZeroDivisionError):
            lb.distill({**recipe, "device": fake}, tmp_path / "run", device=device)
    assert seen == [fake, "cpu"] and str(chosen_device()) == "cpu"


def test_a_run_resumes_on_another_device(recipe: dict, tmp_path: Path) -> None:
    first = lb.distill({**recipe, "device": "cpu"}, tmp_path / "run")
    again = lb.distill(recipe, tmp_path / "run")
    assert [row.measures for row in again.rows] == [row.measures for row in first.rows]


def test_a_sweep_does_not_vary_the_device(recipe: dict, tmp_path: Path) -> None:
    with pytest.raises(LimbeckError, match="device: cannot vary"):
        lb.sweep(recipe, ["device=cpu,cuda"], out=tmp_path / "sweep")


def test_workers_are_on_the_cpu_unless_a_device_is_asked_for(monkeypatch: pytest.MonkeyPatch, fake: str) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr("limbeck.scoring.local.cores", lambda: 7)
    assert (LocalEngine().device, LocalEngine().workers) == ("cpu", 7)
    with using_device("cuda"):
        assert (LocalEngine().device, LocalEngine().workers) == ("cuda", 1)
        assert LocalEngine(3).workers == 3
        assert engine_named("ray").device == "cuda"


@pytest.mark.parametrize("kind", ["dual_encoder", "dipair", "cross_encoder"])
def test_a_worker_scores_on_its_device(tiny_bert: str, tmp_path: Path, fake: str, kind: str) -> None:
    own = {"tokens": [2, 2], "dim": 16} if kind == "dipair" else {}
    matcher = build(matcher_config(kind=kind, init_from=tiny_bert, query_length=8, document_length=8, **own))
    matcher.save_pretrained(tmp_path / "model")
    (tmp_path / "pairs.jsonl").write_text(json.dumps({"text1": "copy a file", "text2": "sort a list"}) + "\n")
    lb.score(tmp_path / "model", tmp_path / "pairs.jsonl", tmp_path / "out", workers=1, head="torch")
    assert Worker(tmp_path / "out").run(0) == 1
    with pytest.raises((NotImplementedError, RuntimeError), match="meta"):  # which cannot give numbers back
        Worker(tmp_path / "out", fake).run(0)


def test_a_query_generator_is_on_the_device(tmp_path: Path, fake: str) -> None:
    folder = write_t5(tmp_path / "t5", steps=1)
    assert QueryGenerator.load(str(folder)).model.device.type == "cpu"
    with using_device(fake):
        assert QueryGenerator.load(str(folder)).model.device.type == fake
