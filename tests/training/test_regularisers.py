"""Token dropout and masked language modelling in training: the same seed, a kill, several stages, several processes."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from limbeck.errors import LimbeckError
from limbeck.matchers import Matcher
from limbeck.objectives import masked_lm
from limbeck.recipe.files import load_recipe
from limbeck.recipe.stage import Stage
from limbeck.runs.run import distill
from limbeck.training import trainer as trainer_module
from limbeck.training.batches import Collator
from limbeck.training.stages import Fit, fit
from tests.training.toy import ToyLists, first_gradients, tiny_student, torchrun, train, weights

STAGE = Stage(objectives=["one_hot"], steps=6, batch_size=6, lr=1e-3, checkpoint_seconds=0)
DROPPING = STAGE.model_copy(update={"token_dropout": 0.3})
RESTORING = STAGE.model_copy(update={"objectives": ["one_hot", "0.1 * masked_lm"]})
BOTH = RESTORING.model_copy(update={"token_dropout": 0.3})
ONLY = STAGE.model_copy(update={"objectives": ["masked_lm"]})

each = pytest.mark.parametrize("stage", [DROPPING, RESTORING, BOTH], ids=["token dropout", "masked_lm", "both"])


class Killed(BaseException):
    """Stands for a kill in the middle: nothing may catch it."""


def run(start: str, folder: Path, stages: list[Stage]) -> tuple[Matcher, list[dict[str, torch.Tensor]]]:
    """The student after some stages, and all weights as they were after each, those of a token head included."""
    student = tiny_student(start, dropout=0.1)
    fit(student, stages, lambda _: ToyLists(), Fit("student", folder, folder / "log.jsonl", seed=3))
    return student, [load_file(folder / f"student-stage-{number}.safetensors") for number in range(len(stages))]


def killed_in(call: int, monkeypatch: pytest.MonkeyPatch, start: str, folder: Path, stages: list[Stage]) -> None:
    """Run the stages and break off in the given step, counted over all stages."""
    plain, calls = trainer_module.DistillationTrainer.compute_loss, []

    def compute_loss(self, *args, **kwargs):
        calls.append(None)
        if len(calls) > call:
            raise Killed
        return plain(self, *args, **kwargs)

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(trainer_module.DistillationTrainer, "compute_loss", compute_loss)
        run(start, folder, stages)


def same(one: dict[str, torch.Tensor], two: dict[str, torch.Tensor]) -> bool:
    return one.keys() == two.keys() and all(torch.equal(one[name], two[name]) for name in one)


@each
def test_same_seed_gives_the_same_weights_and_other_ones_than_without(tiny_bert, tmp_path, stage):
    first, second = (run(tiny_bert, tmp_path / name, [stage]) for name in "ab")
    assert same(first[1][0], second[1][0])
    assert not torch.equal(weights(first[0]), weights(run(tiny_bert, tmp_path / "plain", [STAGE])[0]))


@each
@pytest.mark.parametrize("workers", [0, 1])
def test_a_killed_run_resumes_and_ends_bit_equal(tiny_bert, tmp_path, monkeypatch, stage, workers):
    stage = stage.model_copy(update={"workers": workers})
    whole = run(tiny_bert, tmp_path / "whole", [stage])
    killed_in(4, monkeypatch, tiny_bert, tmp_path / "killed", [stage])
    assert (tmp_path / "killed" / "student-stage-0" / "checkpoint-4").is_dir()
    assert same(run(tiny_bert, tmp_path / "killed", [stage])[1][0], whole[1][0])


def test_no_token_dropout_and_no_masking_leave_training_as_it_was(tiny_bert, tmp_path, monkeypatch):
    for name in ("drop_tokens", "mask_tokens"):
        monkeypatch.setattr(f"limbeck.training.batches.{name}", lambda *_: pytest.fail("something was hidden"))
    _, (after,) = run(tiny_bert, tmp_path, [STAGE])
    assert not [name for name in after if "token_head" in name]


def test_only_some_stages_restore_tokens_and_the_head_waits_for_them(tiny_bert, tmp_path, monkeypatch):
    stages = [RESTORING, STAGE, DROPPING, ONLY]
    student, after = run(tiny_bert, tmp_path / "whole", stages)
    heads = [{name: value for name, value in one.items() if "token_head" in name} for one in after]
    assert len(heads[0]) == 5
    assert same(heads[0], heads[1]) and same(heads[1], heads[2])
    assert not any(torch.equal(heads[2][name], heads[3][name]) for name in heads[3])
    assert not len(student.heads)
    for call in (2, 9, 20):  # in the first, the second and the last stage
        killed_in(call, monkeypatch, tiny_bert, tmp_path / str(call), stages)
        resumed, again = run(tiny_bert, tmp_path / str(call), stages)
        assert all(same(one, two) for one, two in zip(after, again, strict=True))
        assert torch.equal(weights(student), weights(resumed))


def test_the_head_is_frozen_if_no_objective_needs_it(tiny_bert, tmp_path):
    """Several processes would wait for its gradients without end."""
    student, learning = tiny_student(tiny_bert), []

    def lists(stage: Stage) -> ToyLists:
        learning.append({parameter.requires_grad for parameter in student.heads.parameters()})
        return ToyLists()

    fit(student, [STAGE, RESTORING, STAGE], lists, Fit("student", tmp_path, tmp_path / "log.jsonl", seed=3))
    assert learning == [{False}, {True}, {False}]


def test_the_head_is_in_checkpoints_and_neither_in_the_student_nor_in_its_folder(tiny_bert, tmp_path, monkeypatch):
    killed_in(4, monkeypatch, tiny_bert, tmp_path / "run", [RESTORING])
    checkpoint = load_file(tmp_path / "run" / "student-stage-0" / "checkpoint-4" / "model.safetensors")
    assert {name.removeprefix("heads.token_head.") for name in checkpoint if name.startswith("heads.")} == {
        "dense.weight",
        "dense.bias",
        "norm.weight",
        "norm.bias",
        "bias",
    }
    student, _ = run(tiny_bert, tmp_path / "run", [RESTORING])
    plain = tiny_student(tiny_bert)
    assert student.state_dict().keys() == plain.state_dict().keys()
    assert student.configuration() == plain.configuration()
    student.save_pretrained(tmp_path / "student")
    plain.save_pretrained(tmp_path / "plain")
    names = [sorted(str(p.relative_to(tmp_path / n)) for p in (tmp_path / n).rglob("*")) for n in ("student", "plain")]
    assert names[0] == names[1]
    stored = load_file(tmp_path / "student" / "model.safetensors")
    assert stored.keys() == load_file(tmp_path / "plain" / "model.safetensors").keys()

    from sentence_transformers import SentenceTransformer

    theirs = SentenceTransformer(str(tmp_path / "student")).encode_query(["copy a file"])
    np.testing.assert_allclose(theirs, student.encode_query(["copy a file"]), atol=1e-6)


def test_a_student_that_is_saved_while_it_trains_has_no_head_in_its_folder(tiny_bert, tmp_path):
    student = tiny_student(tiny_bert)
    student.add_token_head(seed=0)
    student.save_pretrained(tmp_path / "student")
    assert not [
        name for file in (tmp_path / "student").rglob("*.safetensors") for name in load_file(file) if "head" in name
    ]


def test_masked_tokens_are_learnt(tiny_bert, tmp_path):
    stage = ONLY.model_copy(update={"steps": 120, "lr": 3e-3, "checkpoint_seconds": 60})
    student = train(tiny_bert, tmp_path, stage, dropout=0.0)
    lines = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    losses = [line["objectives"]["masked_lm"] for line in lines if "objectives" in line]
    words = len(student.tower.token_embeddings("query"))
    assert losses[0] == pytest.approx(math.log(words), rel=0.5)
    assert np.mean(losses[-4:]) < math.log(17)  # knows at least which 16 words there are


def restored(student: Matcher, chunk: int | None, needs: frozenset[str]) -> torch.Tensor:
    """The gradient of masked_lm over one batch."""
    student.add_token_head(seed=0)
    student.train()
    batch = Collator(ToyLists(), student, chunk=chunk, restore_tokens=True)([(0, index) for index in range(6)])
    signals = student(batch.student, needs, recompute=chunk is not None)
    masked_lm()(signals, None, batch.targets).mean().backward()
    return torch.cat([p.grad.flatten() for _, p in sorted(student.named_parameters()) if p.grad is not None])


@pytest.mark.parametrize("separate", [False, True])
def test_gradient_caching_gives_the_same_gradients(tiny_bert, separate):
    needs = frozenset({"token_logits"})
    plain = restored(tiny_student(tiny_bert, separate=separate), None, needs)
    cached = restored(tiny_student(tiny_bert, separate=separate), 3, needs)
    beside = restored(tiny_student(tiny_bert, separate=separate), 3, needs | {"scores"})
    assert plain.abs().max() > 1e-3
    assert torch.allclose(plain, cached, atol=1e-6)
    assert torch.equal(cached, beside)


def test_token_logits_without_scores_cost_no_ranking_pass(tiny_bert, monkeypatch):
    student = tiny_student(tiny_bert)
    monkeypatch.setattr(student.tower, "forward", lambda *_: pytest.fail("encoded for nothing"))
    assert restored(student, None, frozenset({"token_logits"})).abs().max() > 1e-3


@pytest.mark.parametrize("update", [{"chunk": 3}, {"accumulate": 2}, {"bf16": True}, {"freeze": ["token_embeddings"]}])
def test_it_goes_with_the_other_settings_of_a_stage(tiny_bert, tmp_path, update):
    student, (after,) = run(tiny_bert, tmp_path, [BOTH.model_copy(update=update)])
    assert all(torch.isfinite(value).all() for value in after.values())
    embeddings = tiny_student(tiny_bert).tower.token_embeddings("query")
    assert torch.equal(embeddings, student.tower.token_embeddings("query")) == ("freeze" in update)


def test_a_cross_encoder_has_token_dropout_and_no_masked_lm(tiny_bert, tmp_path):
    plain = first_gradients(tiny_bert, tmp_path / "plain", STAGE, "cross_encoder")
    dropped = first_gradients(tiny_bert, tmp_path / "dropped", DROPPING, "cross_encoder")
    assert not torch.allclose(plain, dropped, atol=1e-4)
    with pytest.raises(LimbeckError, match="masked_lm: a cross_encoder cannot predict masked tokens; use kind: dual"):
        train(tiny_bert, tmp_path / "restoring", RESTORING, kind="cross_encoder")


def test_a_tokeniser_without_a_mask_token_is_named(tiny_bert, tmp_path):
    student = tiny_student(tiny_bert)
    student.tower.model.tokenizer.mask_token = None
    with pytest.raises(LimbeckError) as caught:
        fit(student, [STAGE, RESTORING], lambda _: ToyLists(), Fit("student", tmp_path, tmp_path / "log.jsonl", 3))
    assert str(caught.value) == "masked_lm: the student's tokeniser has no mask token; use another start, or drop it"
    assert not list(tmp_path.iterdir())


def recipe_with(**changes: object) -> dict:
    return {
        "data": {"source": "pydocs"},
        "stages": [{"objectives": ["0.1 * masked_lm", "one_hot"], "steps": 1}],
        **changes,
    }


@pytest.mark.parametrize(
    ("recipe", "message"),
    [
        (
            recipe_with(student={"kind": "cross_encoder"}),
            "masked_lm needs a dual_encoder, and student is a cross_encoder; change it",
        ),
        (
            recipe_with(
                teacher={"train": {"kind": "cross_encoder"}, "stages": [{"objectives": ["masked_lm"], "steps": 1}]}
            ),
            "masked_lm needs a dual_encoder, and teacher.train is a cross_encoder; change it",
        ),
        (
            recipe_with(stages=[{"objectives": ["one_hot"], "steps": 1, "token_dropout": 1}]),
            "token_dropout: Input should be less than 1",
        ),
    ],
)
def test_a_recipe_that_cannot_be_is_refused_in_one_line(recipe, message):
    with pytest.raises(LimbeckError) as caught:
        load_recipe(recipe)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_recipe_reaches_them_all(recipe, tmp_path):
    objectives = ["one_hot(smoothing=0.1)", "0.5 * focal(gamma=2)", "0.1 * masked_lm"]
    recipe = {name: value for name, value in recipe.items() if name != "teacher"}
    stage = {**recipe["stages"][0], "objectives": objectives, "token_dropout": 0.1}
    recipe = {**recipe, "stages": [stage], "student": {**recipe["student"], "dropout": 0.2}}
    distill(recipe, tmp_path / "run")
    lines = [json.loads(line) for line in (tmp_path / "run" / "log.jsonl").read_text().splitlines()]
    logged = next(line["objectives"] for line in lines if "objectives" in line)
    assert set(logged) == {"one_hot(smoothing=0.1)", "focal", "masked_lm"}


@pytest.mark.parametrize(
    ("in_batch", "changes"),
    [
        (False, {"objectives": ["softmax_ce", "0.5 * masked_lm"], "token_dropout": 0.2, "chunk": 4}),
        (True, {"objectives": ["masked_lm"]}),
    ],
)
def test_two_processes_have_the_gradients_of_one(tiny_bert, tmp_path, in_batch, changes):
    usual = {"steps": 4, "batch_size": 6, "lr": 1e-3, "lists": {"in_batch": in_batch}}
    one = first_gradients(tiny_bert, tmp_path / "one", Stage(**usual, **changes))
    two = tmp_path / "two"
    two.mkdir()
    arguments = [tiny_bert, str(two), str(in_batch), "dual_encoder", json.dumps(changes)]
    torchrun(2, "tests.training.toy", *arguments)
    assert one.abs().max() > 1e-3
    assert torch.allclose(one, torch.load(two / "gradients.pt", weights_only=True), atol=1e-5)
