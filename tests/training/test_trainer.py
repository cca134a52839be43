from __future__ import annotations

from pathlib import Path

import pytest
import torch

from limbeck.errors import LimbeckError
from limbeck.objectives import parse
from limbeck.recipe.stage import Stage
from limbeck.training import trainer as trainer_module
from limbeck.training.stages import frozen
from tests.training.toy import first_gradients, gradients, tiny_student, torchrun, train, weights

STAGE = Stage(objectives=["softmax_ce(tau=2)", "0.5 * one_hot"], steps=8, batch_size=6, lr=1e-3, checkpoint_seconds=0)


class Killed(BaseException):
    """Stands for a kill in the middle: nothing may catch it."""


def killed_at(step: int, monkeypatch: pytest.MonkeyPatch, start: str, folder: Path, stage: Stage = STAGE) -> None:
    """Run the stage and break off inside the given step."""
    plain = trainer_module.DistillationTrainer.compute_loss

    def compute_loss(self, *args, **kwargs):
        if self.state.global_step == step:
            raise Killed
        return plain(self, *args, **kwargs)

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(trainer_module.DistillationTrainer, "compute_loss", compute_loss)
        train(start, folder, stage)


def test_same_seed_gives_the_same_weights(tiny_bert, tmp_path):
    first, second = train(tiny_bert, tmp_path / "a", STAGE), train(tiny_bert, tmp_path / "b", STAGE)
    assert torch.equal(weights(first), weights(second))


def test_a_killed_run_resumes_and_ends_bit_equal(tiny_bert, tmp_path, monkeypatch):
    whole = train(tiny_bert, tmp_path / "whole", STAGE)
    killed_at(5, monkeypatch, tiny_bert, tmp_path / "killed")
    assert (tmp_path / "killed" / "student-stage-0" / "checkpoint-5").is_dir()
    resumed = train(tiny_bert, tmp_path / "killed", STAGE)
    assert torch.equal(weights(whole), weights(resumed))
    assert not torch.equal(weights(whole), weights(tiny_student(tiny_bert)))


def test_a_resumed_log_equals_the_log_of_an_uninterrupted_run(tiny_bert, tmp_path, monkeypatch):
    train(tiny_bert, tmp_path / "whole", STAGE)
    killed_at(5, monkeypatch, tiny_bert, tmp_path / "killed")
    (tmp_path / "killed" / "log.jsonl").open("a").write('{"model": "student", "sta')
    train(tiny_bert, tmp_path / "killed", STAGE)
    assert (tmp_path / "killed" / "log.jsonl").read_text() == (tmp_path / "whole" / "log.jsonl").read_text()


def test_a_damaged_checkpoint_is_passed_over_for_an_older_one(tiny_bert, tmp_path, monkeypatch):
    whole = train(tiny_bert, tmp_path / "whole", STAGE)
    killed_at(5, monkeypatch, tiny_bert, tmp_path / "killed")
    newest = tmp_path / "killed" / "student-stage-0" / "checkpoint-5"
    weights_file = newest / "model.safetensors"
    weights_file.write_bytes(weights_file.read_bytes()[:-7])
    resumed = train(tiny_bert, tmp_path / "killed", STAGE)
    assert torch.equal(weights(whole), weights(resumed))


def test_a_checkpoint_cut_short_while_written_is_absent(tiny_bert, tmp_path, monkeypatch):
    whole = train(tiny_bert, tmp_path / "whole", STAGE)
    calls = []

    def seal_but_die(written, place):
        calls.append(place)
        if len(calls) == 3:
            raise Killed
        plain(written, place)

    plain = trainer_module.seal
    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(trainer_module, "seal", seal_but_die)
        train(tiny_bert, tmp_path / "killed", STAGE)
    stage = tmp_path / "killed" / "student-stage-0"
    assert sorted(path.name for path in stage.glob("checkpoint-*")) == ["checkpoint-1", "checkpoint-2"]
    assert torch.equal(weights(whole), weights(train(tiny_bert, tmp_path / "killed", STAGE)))


def test_a_finished_stage_is_not_trained_again(tiny_bert, tmp_path, monkeypatch):
    first = train(tiny_bert, tmp_path, STAGE)
    monkeypatch.setattr(trainer_module.DistillationTrainer, "train", lambda *_, **__: pytest.fail("trained again"))
    assert torch.equal(weights(first), weights(train(tiny_bert, tmp_path, STAGE)))


def test_frozen_parameters_stay_and_the_others_move(tiny_bert, tmp_path):
    before = dict(tiny_student(tiny_bert).named_parameters())
    stage = STAGE.model_copy(update={"freeze": ["token_embeddings"]})
    after = dict(train(tiny_bert, tmp_path, stage).named_parameters())
    unmoved = {name for name in before if torch.equal(before[name], after[name])}
    assert {name for name in unmoved if "pooler" not in name} == {
        "tower.model.0.model.embeddings.word_embeddings.weight"
    }
    assert all(parameter.requires_grad for name, parameter in after.items() if "pooler" not in name)


FROZEN = {
    "dual encoder": {"dim": 8},
    "separate towers": {"dim": 8, "separate": True},
    "cross-encoder": {"kind": "cross_encoder"},
    "segments": {"kind": "cross_encoder", "pooling": "segments"},
    "colbert": {"kind": "colbert", "dim": 8},
    "dipair": {"kind": "dipair", "dim": 8},
    "poly-encoder": {"kind": "poly_encoder"},
    "sentence-t5": {"kind": "sentence_t5"},
    "virt": {"kind": "virt"},
}


@pytest.mark.parametrize("options", FROZEN.values(), ids=FROZEN)
def test_a_frozen_encoder_has_no_dropout_and_the_rest_trains(tiny_bert, options):
    from limbeck.matchers import build, matcher_config
    from limbeck.matchers.base import TextBatch

    student = build(matcher_config(start=tiny_bert, query_length=8, document_length=16, **options))
    inputs = student.prepare(TextBatch(["copy a file", "sort"], ["open a list", "read a page"], None))
    wanted = student.eval()(inputs).scores
    assert not torch.allclose(student.train()(inputs).scores, wanted, atol=1e-3)  # the tiny model has dropout
    with frozen(student, ["encoder"]):
        student.train()
        assert student.training and torch.equal(student(inputs).scores, wanted)
        student.eval().train()
        student(inputs).scores.sum().backward()
        moved = {name for name, parameter in student.named_parameters() if parameter.grad is not None}
        assert moved and not any(".word_embeddings" in name for name in moved)
    assert not torch.allclose(student.train()(inputs).scores, wanted, atol=1e-3)


def test_in_a_stage_a_frozen_tower_gives_the_vectors_that_are_stored(tiny_bert, tmp_path, monkeypatch):
    """Through the trainer, which puts the model in training mode before each step."""
    from transformers.models.bert.modeling_bert import BertEmbeddings

    modes = []
    plain = BertEmbeddings.forward

    def forward(self, *args, **kwargs):
        modes.append((torch.is_grad_enabled(), self.dropout.training))
        return plain(self, *args, **kwargs)

    monkeypatch.setattr(BertEmbeddings, "forward", forward)
    train(tiny_bert, tmp_path, STAGE.model_copy(update={"freeze": ["encoder"]}), kind="cross_encoder")
    assert {dropout for trains, dropout in modes if trains} == {False}


@pytest.mark.parametrize("patterns", [["*"], ["encoder"]])
def test_freezing_everything_is_refused(tiny_bert, tmp_path, patterns):
    with pytest.raises(LimbeckError, match="freeze: no parameter is left to train"):
        train(tiny_bert, tmp_path, STAGE.model_copy(update={"freeze": patterns}))


@pytest.mark.parametrize("kind", ["dual_encoder", "cross_encoder"])
@pytest.mark.parametrize("in_batch", [False, True])
def test_gradient_caching_gives_the_same_gradients(tiny_bert, in_batch, kind):
    _, objective = parse("softmax_ce(tau=2)")
    plain = gradients(tiny_student(tiny_bert, kind), objective, in_batch, chunk=None, recompute=False)
    cached = gradients(tiny_student(tiny_bert, kind), objective, in_batch, chunk=3, recompute=True)
    assert plain.abs().max() > 1e-3
    assert torch.allclose(plain, cached, atol=1e-6)


def test_gradient_caching_repeats_the_same_dropout_in_its_second_pass(tiny_bert):
    """With dropout, a second pass with other masks would give a gradient that is not that of the loss."""
    _, objective = parse("mse")
    found = []
    for recompute in (True, False):
        torch.manual_seed(5)
        found.append(gradients(tiny_student(tiny_bert, dropout=0.3), objective, False, chunk=4, recompute=recompute))
    assert torch.allclose(*found, atol=1e-4, rtol=1e-4)
    torch.manual_seed(6)
    other = gradients(tiny_student(tiny_bert, dropout=0.3), objective, False, chunk=4, recompute=True)
    assert not torch.allclose(found[0], other, atol=1e-4, rtol=1e-4)


def test_accumulated_parts_add_up_to_the_whole_batch(tiny_bert, tmp_path):
    whole = first_gradients(tiny_bert, tmp_path / "whole", STAGE)
    parts = first_gradients(tiny_bert, tmp_path / "parts", STAGE.model_copy(update={"accumulate": 3}))
    assert whole.abs().max() > 1e-3
    assert torch.allclose(whole, parts, atol=1e-5)


def test_bf16_trains_on_the_cpu(tiny_bert, tmp_path):
    plain = weights(train(tiny_bert, tmp_path / "a", STAGE, dropout=0.0))
    half = weights(train(tiny_bert, tmp_path / "b", STAGE.model_copy(update={"bf16": True}), dropout=0.0))
    assert torch.isfinite(half).all()
    assert not torch.equal(plain, half)
    assert (plain - half).abs().max() < 0.05


@pytest.mark.parametrize(
    ("kind", "in_batch"),
    [
        ("dual_encoder", False),
        ("dual_encoder", True),
        ("cross_encoder", False),
        ("colbert", True),
        ("live", True),
        ("virt", True),
    ],
)
def test_two_processes_have_the_gradients_of_one(tiny_bert, tmp_path, kind, in_batch):
    one, two = tmp_path / "one", tmp_path / "two"
    for folder, processes in ((one, 1), (two, 2)):
        folder.mkdir()
        torchrun(processes, "tests.training.toy", tiny_bert, str(folder), str(in_batch), kind)
    first, second = (torch.load(folder / "gradients.pt", weights_only=True) for folder in (one, two))
    assert first.abs().max() > 1e-3
    assert torch.allclose(first, second, atol=1e-5)
