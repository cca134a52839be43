"""The teacher step: explicit, after everything that is cheap to check, and done once."""

from __future__ import annotations

import pytest
import torch

from limbeck.errors import LimbeckError
from limbeck.recipe.files import load_recipe
from limbeck.runs import distill, teacher_step
from limbeck.runs.ranking_task import RankingTask
from limbeck.runs.teacher_step import prepare_teacher


def test_nothing_but_the_teacher_step_makes_a_teacher(recipe, tmp_path):
    session = RankingTask(load_recipe(recipe), tmp_path / "run")
    with pytest.raises(RuntimeError, match="prepare_teacher"):
        _ = session.teacher
    assert not (tmp_path / "run").exists()
    teacher = prepare_teacher(session)
    assert session.teacher is teacher and (tmp_path / "run" / "teacher" / "model").is_dir()
    assert prepare_teacher(session) is teacher


def test_a_recipe_without_a_teacher_passes_the_step_with_none(recipe, tmp_path):
    del recipe["teacher"]
    recipe["stages"][0]["objectives"] = ["one_hot"]
    session = RankingTask(load_recipe(recipe), tmp_path / "run")
    assert prepare_teacher(session) is None and session.teacher is None


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"student": {"init_from": "no-such-model"}}, "no-such-model"),
        (
            {"stages": [{"objectives": ["softmax_ce"], "steps": 1, "freeze": ["nothing"]}]},
            "freeze: no parameter",
        ),
        ({"stages": [{"objectives": ["softmax_ce"], "steps": 1, "freeze": ["*"]}]}, "no parameter is left to train"),
    ],
)
def test_what_is_wrong_with_the_student_is_named_before_the_teacher_is_trained(
    recipe, tmp_path, monkeypatch, change, line
):
    monkeypatch.setattr(teacher_step, "fit", lambda *_: pytest.fail("the teacher was trained"))
    recipe["student"] |= change.get("student", {})
    recipe["stages"] = change.get("stages", recipe["stages"])
    with pytest.raises(LimbeckError, match=line):
        distill(recipe, tmp_path / "run")


def test_a_student_that_starts_from_its_teacher_is_the_same_whether_the_teacher_was_just_trained(recipe, tmp_path):
    """The student's random parts depend on its seed, not on what the teacher's training left of the generator."""
    lengths = {key: value for key, value in recipe["student"].items() if key != "layers"}
    recipe["teacher"]["train"] = {"kind": "dual_encoder", **lengths}
    recipe["student"] = {**lengths, "init_from": "teacher", "dim": 4}
    distill(recipe, tmp_path / "one")
    prepare_teacher(RankingTask(load_recipe(recipe), tmp_path / "two"))
    (tmp_path / "two" / "recipe.yaml").write_text((tmp_path / "one" / "recipe.yaml").read_text())
    torch.rand(7)
    distill(recipe, tmp_path / "two")
    one, two = ((tmp_path / name / "student" / "2_Dense" / "model.safetensors").read_bytes() for name in ("one", "two"))
    assert one == two
