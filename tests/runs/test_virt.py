"""VIRT from its recipes to a report: pairs with classes, a live teacher, students with and without `virt`."""

from __future__ import annotations

import json

import pytest

import limbeck as lb
from limbeck.errors import LimbeckError
from limbeck.recipe.files import load_recipe
from limbeck.runs.add_analyses import add_analyses
from limbeck.runs.sweep import sweep
from tests.runs.test_pairs import pairs, write_classes  # noqa: F401  (a fixture)


@pytest.fixture
def small(pairs, tiny_bert):  # noqa: F811
    """What makes a recipe for VIRT fit three classes of short texts and a model of three layers."""
    write_classes(pairs, classes=3)
    lengths = [f"{who}.{side}_length=8" for who in ("teacher.train", "student") for side in ("query", "document")]
    starts = [f"{who}.init_from={tiny_bert}" for who in ("teacher.train", "student")]
    sizes = ["teacher.stages.0.epochs=0.2", "stages.0.epochs=0.2", "evaluation.baselines=[]"]
    sizes += [f"{stages}.0.batch_size=8" for stages in ("teacher.stages", "stages")]
    return [f"data.source={pairs}", *lengths, *starts, *sizes]


def test_every_student_of_the_paper_learns_attention(small, tmp_path):
    kinds = "virt-adapted,virt-no-interaction,siamese,sentence-t5,deformer,dipair-8-16,poly-encoder-360"
    lengths = [f"{who}.document_length=18" for who in ("teacher.train", "student")]  # DiPair keeps 16 tokens
    result = sweep("virt-laptop", [f"variant={kinds}"], out=tmp_path / "s", overrides=[*small, *lengths])
    students, names = [row for row in result.rows if row.kind == "student"], kinds.split(",")
    assert [row.name for row in students] == names
    assert all(row.objective == "class_ce + virt(map=first)" for row in students)
    assert not [row.failed for row in students if row.failed]
    assert all(set(row.measures) == {"accuracy", "f1"} and row.pairs_per_second and row.speedup for row in students)
    found = json.loads((tmp_path / "s" / "analyses" / "attention_maps.json").read_text())
    assert [one["name"] for one in found["students"]] == names and not found["left_out"]
    depths = {one["name"]: len(one["layers"]) for one in found["students"]}
    assert depths["deformer"] == 2 and depths["siamese"] == 3
    page = result.report.read_text()
    assert "Attention between the texts" in page and "Quality against throughput" in page
    add_analyses(tmp_path / "s", ["attention_maps"], ["evaluation.attention_layer=0"])
    again = json.loads((tmp_path / "s" / "analyses" / "attention_maps.json").read_text())
    assert again["students"] == found["students"] and again["layer"] == 0
    with pytest.raises(LimbeckError, match="is a run on pairs, and wins requires rankings"):
        add_analyses(tmp_path / "s", ["attention_maps", "wins"])


def test_layers_and_weights_are_curves_and_dropped_students_are_named(small, tmp_path):
    over, plain = ["objective.layers=first:1,first:2,last:1,last:2,all"], [*small, "evaluation.analyses=[]"]
    layers = sweep("virt-laptop", over, out=tmp_path / "l", overrides=plain, keep=False)
    found = json.loads((tmp_path / "l" / "analyses" / "sensitivity.json").read_text())
    assert [line["name"] for line in found["lines"]] == ["first:…", "last:…"]
    by_name = {row.name: row for row in layers.rows}
    best = next(row for name, row in by_name.items() if "first:2" in name)
    assert found["lines"][0]["results"][1]["quality"]["mean"] == pytest.approx(best.measures["accuracy"])
    with pytest.raises(LimbeckError, match="weights were dropped; run the sweep without --drop-students"):
        add_analyses(tmp_path / "l", ["attention_maps"])
    values = "class_ce,class_ce + 0.2 * virt,class_ce + virt"
    result = sweep("virt-laptop", [f"objective={values}"], out=tmp_path / "w", overrides=small)
    (line,) = json.loads((tmp_path / "w" / "analyses" / "sensitivity.json").read_text())["lines"]
    assert [point["value"] for point in line["results"]] == [0.2, 1.0]
    maps = json.loads((tmp_path / "w" / "analyses" / "attention_maps.json").read_text())
    assert [one["name"] for one in maps["students"]] == values.split(",")  # with and without virt
    assert "Sensitivity: … in class_ce + … * virt" in result.report.read_text()


def test_the_recipe_at_the_papers_size(small, tmp_path):
    paper = load_recipe("virt-mnli")
    (stage,) = paper.stages
    assert (stage.lr, stage.batch_size, stage.warmup, stage.epochs) == (5e-5, 28, 0.1, 5)
    assert (paper.student.query_length, paper.student.document_length) == (128, 128)
    single = [f"{stages}.0.{key}" for stages in ("teacher.stages", "stages") for key in ("workers=0", "bf16=false")]
    result = lb.distill("virt-mnli", tmp_path / "run", [*small, *single])
    assert list(result.rows[-1].measures) == ["accuracy"]
    assert "attention_maps" in {path.stem for path in (tmp_path / "run" / "analyses").iterdir()}
    shown = lb.inspect(tmp_path / "run", "copy a file", "move the list", teacher=tmp_path / "run" / "teacher" / "model")
    assert len(shown.model.scores) == 3 and shown.distance is not None


def test_a_teacher_that_is_not_live_is_refused_when_the_recipe_is_read(small):
    with pytest.raises(LimbeckError, match=r"teacher.live: true"):
        load_recipe("virt-laptop", [*small, "teacher.live=false"])
