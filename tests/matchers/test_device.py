"""Which device is chosen, and that models, inputs and heads go there. No GPU is needed: torch's `meta` replaces it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest
import torch

import limbeck as lb
from limbeck.errors import LimbeckError
from limbeck.matchers import Matcher, TextBatch, build, device_choice, matcher_config
from limbeck.matchers.config import architecture_of
from limbeck.matchers.device import chosen_device, on_device
from limbeck.matchers.device_choice import restoring_device, use_recipe_device, using_device
from limbeck.matchers.encoding import InMemory
from limbeck.matchers.encoding_matcher import encodes_apart
from limbeck.matchers.pair_scorer import PairScorer
from limbeck.recipe.files import load_recipe

KINDS = {
    "cross_encoder": {},
    "cross_encoder, segments": {"pooling": "segments"},
    "dual_encoder": {},
    "dual_encoder, untied": {"untied": True, "dim": 8},
    "colbert": {"dim": 8},
    "dipair": {"tokens": [2, 2], "dim": 16},
    "dipair, cosine": {"tokens": [2, 2], "dim": 16, "head": "transformer+cosine"},
    "dipair, ffnn": {"tokens": [2, 2], "dim": 16, "head": "ffnn"},
    "poly_encoder": {"tokens": [4, 1]},
}


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> str:
    """A device on which everything has its shape and nothing its numbers; a tensor left on the CPU is an error."""
    monkeypatch.setattr(device_choice, "NAMES", r"cpu|meta")
    # Asks whether a mask is all true, which `meta` does not know.
    monkeypatch.setattr("transformers.masking_utils._ignore_bidirectional_mask_sdpa", lambda *_, **__: False)
    monkeypatch.setattr(torch, "autocast", lambda *_, **__: nullcontext())  # which it does not have
    return "meta"


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch says that there are two."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)


def made(kind: str, start: str) -> Matcher:
    settings = {"kind": kind.partition(",")[0], "init_from": start, "query_length": 8, "document_length": 8}
    return build(matcher_config(**settings, **KINDS[kind]))


def places(module: torch.nn.Module) -> set[str]:
    return {tensor.device.type for tensor in (*module.parameters(), *module.buffers())}


@restoring_device
def with_recipe(name: str | None) -> str:
    use_recipe_device(name)
    return str(chosen_device())


def test_the_nearest_word_decides(monkeypatch: pytest.MonkeyPatch, gpus: None) -> None:
    assert str(chosen_device()) == "cuda"
    monkeypatch.setenv("LIMBECK_DEVICE", "cuda:1")
    assert str(chosen_device()) == "cuda:1"
    assert with_recipe("cpu") == "cpu" and with_recipe(None) == "cuda:1"
    with using_device("cuda:0"):
        assert with_recipe("cpu") == "cuda:0"
        assert str(chosen_device("cpu")) == "cpu"
        with using_device(None):
            assert str(chosen_device()) == "cuda:0"
    assert str(chosen_device()) == "cuda:1"


def test_without_a_gpu_it_is_the_cpu_and_mps_only_if_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    assert str(chosen_device()) == "cpu" and str(chosen_device("mps")) == "mps"


def test_each_process_of_torchrun_has_its_own_gpu(monkeypatch: pytest.MonkeyPatch, gpus: None) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert str(chosen_device()) == "cuda:1" and str(chosen_device("cuda:0")) == "cuda:0"


@pytest.mark.parametrize(
    ("name", "count", "message"),
    [
        ("gpu", 2, "device 'gpu': is not a device; use cpu, cuda, cuda:1 or mps"),
        ("cuda:x", 2, "device 'cuda:x': is not a device; use cpu, cuda, cuda:1 or mps"),
        ("cuda", 0, "device cuda: torch sees no GPU; use cpu, or install torch with CUDA"),
        ("cuda:2", 2, "device cuda:2: there are 2 GPUs, counted from 0; use cuda:1 or less"),
        ("mps", 2, "device mps: torch sees no Apple GPU; use cpu"),
    ],
)
def test_a_device_that_does_not_exist_is_refused_in_one_line(
    monkeypatch: pytest.MonkeyPatch, name: str, count: int, message: str
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: count > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    with pytest.raises(LimbeckError) as error:
        chosen_device(name)
    assert str(error.value) == message


def test_a_wrong_variable_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LIMBECK_DEVICE", "gpu")
    with pytest.raises(LimbeckError, match="LIMBECK_DEVICE 'gpu': is not a device"):
        chosen_device()


@pytest.mark.parametrize("kind", KINDS)
def test_a_matcher_is_built_and_loaded_on_the_device(
    tiny_bert: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fake: str, kind: str
) -> None:
    made(kind, tiny_bert).save_pretrained(tmp_path / "model")
    with using_device(fake):
        assert places(made(kind, tiny_bert)) == {fake}
        assert places(architecture_of(kind.partition(",")[0]).from_pretrained(tmp_path / "model")) == {fake}
    assert places(lb.load(tmp_path / "model")) == {"cpu"}
    assert places(lb.load(tmp_path / "model", device=fake)) == {fake}
    monkeypatch.setenv("LIMBECK_DEVICE", fake)
    found = lb.load(tmp_path / "model")
    assert places(found) == {fake} and found.device.type == fake
    if encodes_apart(found):
        assert found.interaction.device.type == found.interaction.folded().device.type == fake


@pytest.mark.parametrize("in_batch", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_a_training_batch_is_scored_on_the_device(tiny_bert: str, fake: str, kind: str, in_batch: bool) -> None:
    with using_device(fake):
        matcher = made(kind, tiny_bert)
    lists = None if in_batch else torch.tensor([[0, 1], [1, 2]])
    batch = TextBatch(["copy a file", "sort"], ["copy", "sort a list", "open a new page"], lists)
    signals = matcher(on_device(matcher.prepare(batch), fake))
    assert signals.scores is not None and signals.scores.device.type == fake
    assert signals.scores.shape[:2] == (2, 3 if in_batch else 2)


def devices_read(matcher: Matcher) -> Iterator[str]:
    """Run it on texts until their results come back, which `meta` cannot; on which devices its encoder's inputs are."""
    read: set[str] = set()

    def note(module: torch.nn.Module, args: tuple, kwargs: dict) -> None:
        read.update(value.device.type for value in (*args, *kwargs.values()) if isinstance(value, torch.Tensor))

    for module in matcher.modules():
        if isinstance(module, torch.nn.Embedding):
            module.register_forward_pre_hook(note, with_kwargs=True)
    with pytest.raises(NotImplementedError, match="meta"):
        matcher.score([("copy a file", "sort a list")])
    yield from read


@pytest.mark.parametrize("kind", KINDS)
def test_texts_are_scored_on_the_device(tiny_bert: str, fake: str, kind: str) -> None:
    with using_device(fake):
        matcher = made(kind, tiny_bert)
    assert set(devices_read(matcher)) == {fake}


@pytest.mark.parametrize("kind", [kind for kind in KINDS if not kind.startswith("cross")])
def test_stored_encodings_go_to_the_interaction(tiny_bert: str, fake: str, kind: str) -> None:
    matcher = made(kind, tiny_bert)
    assert encodes_apart(matcher)
    stores = [InMemory(matcher.encode(["copy a file", "sort"], position)) for position in (0, 1)]
    scorer = PairScorer(matcher.interaction.to(fake).folded(), stores)
    for position in (0, 1):
        assert {part.device.type for part in scorer.prepare(np.array([0, 1]), position)} == {fake}


def test_an_interaction_without_weights_saves_nothing(tiny_bert: str) -> None:
    matcher = made("dual_encoder", tiny_bert)
    assert encodes_apart(matcher) and not matcher.interaction.state_dict()


def test_a_recipe_names_a_device() -> None:
    recipe = load_recipe("defense-laptop", ["device=cuda:1"])
    assert recipe.device == "cuda:1" and load_recipe("defense-laptop").device is None
    with pytest.raises(LimbeckError, match=r"device: device 'gpu': is not a device; use cpu"):
        load_recipe("defense-laptop", ["device=gpu"])
