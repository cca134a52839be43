"""A student that learns a live cross-encoder's attention: gradients, and what is refused before training."""

from __future__ import annotations

import json

import pytest
import torch

import limbeck as lb
from limbeck.errors import LimbeckError
from limbeck.recipe.files import load_recipe
from limbeck.recipe.stage import Stage
from limbeck.runs import teacher_step
from limbeck.runs.run import distill
from limbeck.training.attention import attention_shown, layers_shown
from limbeck.training.batches import Collator
from limbeck.training.stages import Fit, fit
from limbeck.training.teachers import live_signals
from tests.matchers.families import FAMILIES, write_family, write_tokenizer
from tests.training.toy import ToyLists, first_gradients, tiny_student, torchrun, train

EXAMPLES = [(0, index) for index in range(5)]
KINDS = ["dual_encoder", "colbert", "dipair", "poly_encoder", "siamese", "sentence_t5", "virt", "deformer"]
STAGE = Stage(objectives=["one_hot", "virt"], steps=1, batch_size=6, lr=1e-3)
FIRST = "virt(map=first, block=renormalised)"  # a deformer has fewer layers that read each text alone


def options(kind: str) -> dict[str, object]:
    return {"tokens": (3, 1)} if kind == "poly_encoder" else {}


@pytest.mark.parametrize(("kind", "in_batch"), [("dual_encoder", True), *((kind, False) for kind in KINDS)])
def test_chunks_and_gradient_caching_leave_the_gradients_as_they_are(tiny_bert, tmp_path, kind, in_batch):
    changes = {"lists": STAGE.lists.model_copy(update={"in_batch": in_batch}), "objectives": ["one_hot", FIRST]}
    plain = STAGE.model_copy(update=changes)
    whole = first_gradients(tiny_bert, tmp_path / "whole", plain, f"virt:{kind}")
    cached = first_gradients(tiny_bert, tmp_path / "cached", plain.model_copy(update={"chunk": 3}), f"virt:{kind}")
    alone = first_gradients(
        tiny_bert, tmp_path / "alone", plain.model_copy(update={"objectives": ["one_hot"]}), f"virt:{kind}"
    )
    assert torch.allclose(whole, cached, atol=1e-5)
    assert (whole - alone).abs().max() > 1e-4  # which virt is in


@pytest.mark.parametrize(
    ("kind", "objectives"),
    [
        ("dual_encoder", ["virt(layers=first:1)"]),
        ("virt", ["one_hot", "virt"]),
        pytest.param("dipair", ["one_hot", "virt"], marks=pytest.mark.full),
        pytest.param("colbert", ["one_hot", "virt"], marks=pytest.mark.full),
    ],
)
def test_two_processes_have_the_gradients_of_one(tiny_bert, tmp_path, kind, objectives):
    """With virt alone, nothing behind the first layer's keys has a gradient, and no process waits for one."""
    stage = STAGE.model_copy(update={"objectives": objectives})
    one = first_gradients(tiny_bert, tmp_path / "one", stage, f"virt:{kind}")
    (tmp_path / "two").mkdir()
    told = json.dumps({"objectives": objectives, "steps": 1})
    torchrun(2, "tests.training.toy", tiny_bert, str(tmp_path / "two"), "False", f"virt:{kind}", told)
    two = torch.load(tmp_path / "two" / "gradients.pt", weights_only=True)
    assert one.abs().max() > 1e-4
    assert torch.allclose(one, two, atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_the_students_maps_come_closer_to_the_teachers(tiny_bert, tmp_path, kind):
    stage = STAGE.model_copy(update={"objectives": [FIRST], "steps": 20, "lr": 1e-2})
    student = tiny_student(tiny_bert, kind, **options(kind))
    teacher = tiny_student(tiny_bert, "cross_encoder")
    with torch.no_grad():
        for name, weight in teacher.named_parameters():
            if "query.weight" in name:
                weight.mul_(3)
    fit(student, [stage], lambda _: ToyLists(), Fit("student", tmp_path, tmp_path / "log", seed=3, teacher=teacher))
    lines = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    (losses,) = zip(*(line["objectives"].values() for line in lines if "objectives" in line), strict=True)
    assert losses[-1] < 0.85 * losses[0]
    assert student.attention_layers is None and teacher.attention_layers is None  # as they were


def test_both_show_the_layers_that_objectives_compare_and_no_others(tiny_bert):
    student, teacher = tiny_student(tiny_bert), tiny_student(tiny_bert, "cross_encoder")
    stage = STAGE.model_copy(update={"objectives": ["virt(layers=last:1)", "mse"]})
    with attention_shown(student, teacher, stage):
        batch = Collator(ToyLists(), student, teacher)(EXAMPLES)
        shown = student(batch.student, stage.student_signals)
        told = live_signals(teacher, batch.live, stage.teacher_signals, batch.targets)
    assert [side.layers for side in shown.text_attention] == [(1,), (1,)] and told.cross_attention.layers == (1,)
    assert told.scores is not None and shown.scores is not None
    with attention_shown(student, None, STAGE.model_copy(update={"objectives": ["one_hot"]})):
        assert student.attention_layers is None


def test_a_stage_without_virt_shows_no_attention(tiny_bert, tmp_path):
    student = train(tiny_bert, tmp_path, STAGE.model_copy(update={"objectives": ["one_hot"]}), kind="virt:dual_encoder")
    assert student.attention_layers is None


def families(tmp_path, **changes: object) -> dict[str, object]:
    """Two models of one tokenizer, of different families and sizes."""
    return {
        "bert": write_family("bert", tmp_path / "bert"),
        "other": write_family("distilbert", tmp_path / "other", **changes),
    }


def made(start: str, kind: str = "dual_encoder", **told: object):
    return lb.matchers.build(
        lb.matchers.matcher_config(kind=kind, init_from=start, query_length=8, document_length=16, **told)
    )


def test_families_may_differ_where_tokens_are_the_same(tmp_path):
    starts = families(tmp_path)
    student, teacher = made(starts["other"]), made(starts["bert"], "cross_encoder")
    assert layers_shown(student, teacher, STAGE) == ((0, 1, 2), (0, 1, 2))


@pytest.mark.parametrize(
    ("changes", "objective", "message"),
    [
        ({"n_layers": 2}, "virt", "the student has 2 layers, the teacher 3; say which belong together: map=spread"),
        ({"n_heads": 4}, "virt", "the student has 4 attention heads, the teacher 2; set average_heads=true"),
        ({}, "virt(layers=last:4)", "asks for 4 layers, and the student has 3; ask for fewer"),
    ],
)
def test_sizes_that_do_not_go_together_are_named_before_training(tmp_path, changes, objective, message):
    starts = families(tmp_path, **changes)
    stage = STAGE.model_copy(update={"objectives": [objective]})
    with pytest.raises(LimbeckError) as caught:
        layers_shown(made(starts["other"]), made(starts["bert"], "cross_encoder"), stage)
    assert message in str(caught.value) and "\n" not in str(caught.value)


def test_stated_mappings_allow_for_other_depths_and_heads(tmp_path):
    starts = families(tmp_path, n_layers=2, n_heads=4)
    stage = STAGE.model_copy(update={"objectives": ["virt(map=spread, average_heads=true)"]})
    student, teacher = made(starts["other"]), made(starts["bert"], "cross_encoder")
    assert layers_shown(student, teacher, stage) == ((0, 1), (1, 2))
    fit(student, [stage], lambda _: ToyLists(), Fit("student", tmp_path, tmp_path / "log", seed=3, teacher=teacher))
    losses = [json.loads(line).get("objectives") for line in (tmp_path / "log").read_text().splitlines()]
    assert all(0 < each["virt(map='spread', average_heads=True)"] < 1 for each in losses if each)


def test_another_tokenizer_is_named_before_training(tmp_path):
    starts = families(tmp_path)
    write_tokenizer(tmp_path / "other", FAMILIES["distilbert"][2], words=["other", "words"])
    with pytest.raises(LimbeckError, match="split texts into different tokens.*models with the same tokenizer"):
        layers_shown(made(starts["other"]), made(starts["bert"], "cross_encoder"), STAGE)


def test_marks_do_not_make_another_tokenizer(tiny_bert):
    """ColBERT's markers become tokens of their own where the vocabulary has them."""
    student = made(tiny_bert, "colbert", dim=8)
    student.tower.transformer("query").tokenizer.add_special_tokens({"additional_special_tokens": ["[unused0]"]})
    assert layers_shown(student, made(tiny_bert, "cross_encoder"), STAGE) == ((0, 1, 2), (0, 1, 2))


@pytest.mark.parametrize(
    ("student", "teacher", "message"),
    [
        (
            {"encoder": "static"},
            {},
            "the attention of a model of type StaticEmbedding cannot be read, only that of bert",
        ),
        ({"kind": "dipair", "tokens": (2, 2, 2)}, {}, "virt compares the attention of two texts, and there are 3"),
        ({}, {"kind": "colbert", "dim": 8}, "a colbert shows no attention between texts; use a cross_encoder"),
        ({"document_length": 40}, {}, "is more than the teacher's 24; make student.query_length and"),
        ({"query_length": 6}, {"pooling": "segments"}, "set student.query_length: 8 and student.document_length: 16"),
    ],
)
def test_models_whose_attention_cannot_be_compared_are_named(tiny_bert, student, teacher, message):
    def model(kind: str, told: dict):
        given = {"kind": kind, "init_from": tiny_bert, "query_length": 8, "document_length": 16} | told
        return lb.matchers.build(lb.matchers.matcher_config(**given))

    with pytest.raises(LimbeckError) as caught:
        layers_shown(model("dual_encoder", student), model("cross_encoder", teacher), STAGE)
    assert message in str(caught.value) and "\n" not in str(caught.value)


def told(recipe: dict, objectives: list[str], **teacher: object) -> dict:
    whole = {**recipe["teacher"], "live": True, **teacher}
    student = {name: value for name, value in recipe["student"].items() if name != "layers"}
    return recipe | {
        "teacher": whole,
        "student": student,
        "stages": [recipe["stages"][0] | {"objectives": objectives, "steps": 30}],
    }


@pytest.mark.parametrize("kind", ["dual_encoder", "dipair"])
def test_a_whole_run_learns_labels_scores_and_attention(recipe, tmp_path, kind):
    objectives = ["one_hot", "softmax_ce", "2 * virt(layers=first:2)"]
    whole = told(recipe, objectives)
    whole["student"] |= {"kind": kind}
    distill(whole, tmp_path / "run")
    lines = [json.loads(line) for line in (tmp_path / "run" / "log.jsonl").read_text().splitlines()]
    found = [line["objectives"] for line in lines if len(line.get("objectives", {})) == 3]
    assert len(found) >= 3
    assert found[-1]["virt(layers='first:2')"] < found[0]["virt(layers='first:2')"]
    assert lb.load(tmp_path / "run" / "student").kind == kind


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"teacher": {"live": False}},
            "stages.0: virt reads the teacher's attention of pairs, which is not stored; set",
        ),
        (
            {"student": {"kind": "cross_encoder"}},
            "virt needs a model that encodes texts apart, and student is a cross_e",
        ),
        ({"stage": {"token_dropout": 0.1}}, "token_dropout hides tokens from the student that virt compares"),
        ({"stage": {"freeze": ["encoder"]}}, "freeze: virt trains the encoder; drop encoder from freeze"),
        ({"train": {"kind": "colbert", "dim": 8}}, "needs cross_attention, which teacher.train (a colbert) does not"),
    ],
)
def test_recipes_that_cannot_work_are_refused_when_they_are_read(recipe, changes, message):
    whole = told(recipe, ["virt"], **changes.get("teacher", {}))
    whole["student"] = whole["student"] | changes.get("student", {})
    whole["teacher"]["train"] = whole["teacher"]["train"] | changes.get("train", {})
    whole["stages"] = [whole["stages"][0] | changes.get("stage", {})]
    with pytest.raises(LimbeckError) as caught:
        load_recipe(whole)
    assert message in str(caught.value) and "\n" not in str(caught.value)


def test_what_does_not_go_together_is_found_before_the_teacher_is_trained(recipe, tmp_path, monkeypatch):
    whole = told(recipe, ["virt"])
    whole["student"]["layers"] = 1
    monkeypatch.setattr(teacher_step, "_train", lambda *_: pytest.fail("the teacher was trained"))
    with pytest.raises(LimbeckError, match="the student has 1 layers, the teacher 3"):
        distill(whole, tmp_path / "run")


def test_a_loaded_teacher_is_compared_before_the_student_is_trained(recipe, tiny_bert, tmp_path):
    made(tiny_bert, "cross_encoder", layers=2).save_pretrained(tmp_path / "teacher")
    whole = told(recipe, ["virt"]) | {"teacher": {"model": str(tmp_path / "teacher"), "live": True}}
    with pytest.raises(LimbeckError, match="the student has 3 layers, the teacher 2"):
        distill(whole, tmp_path / "run")
    assert not (tmp_path / "run" / "student").exists()
