"""Inference in bfloat16: near the scores of float32, fine enough not to tie, and never taken for them."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from limbeck import processor
from limbeck.matchers import bf16, build, load, matcher_config
from limbeck.matchers.bf16 import in_bf16
from limbeck.progress import reporting

QUERIES = ["how do I copy a file", "sort a list in place", "open a network socket"]
DOCUMENTS = [f"Copy data from src to dst, {word}." for word in "all of it at once or line by line".split()]
PAIRS = [(query, document) for query in QUERIES for document in DOCUMENTS]
KINDS = {
    "dual encoder": {"kind": "dual_encoder", "scale": 20.0},
    "cross-encoder": {"kind": "cross_encoder"},
    "segments": {"kind": "cross_encoder", "pooling": "segments"},
    "weighted": {"kind": "cross_encoder", "pooling": "weighted"},
    "colbert": {"kind": "colbert", "dim": 32},
    "dipair": {"kind": "dipair", "tokens": [2, 2], "dim": 32},
}


@pytest.fixture(params=KINDS.values(), ids=KINDS)
def matcher(request, minilm):
    torch.manual_seed(0)
    return build(matcher_config(start=minilm, layers=2, query_length=16, document_length=32, **request.param)).eval()


def test_scores_are_near_those_of_float32_and_do_not_tie(matcher):
    exact = matcher.score(PAIRS)
    with in_bf16(matcher):
        half = matcher.score(PAIRS)
    assert not np.array_equal(half, exact)
    assert np.abs(half - exact).max() < 0.02 * np.abs(exact).max() + 0.02
    assert half.dtype == np.float32
    coarse = torch.from_numpy(half).bfloat16().float().numpy()
    assert not np.array_equal(half, coarse)  # what follows the transformer is not rounded to 8 bits


def test_its_outputs_have_another_key_and_it_is_restored_afterwards(matcher):
    exact, identity = matcher.score(PAIRS), matcher.identity()
    with in_bf16(matcher):
        assert matcher.identity() == identity | {"bf16": True}
        with in_bf16(matcher):  # inside itself it changes nothing
            pass
        assert matcher.bf16
    assert matcher.identity() == identity
    assert np.array_equal(matcher.score(PAIRS), exact)
    with in_bf16(matcher, wanted=False):
        assert not matcher.bf16


def test_a_model_with_its_classifier_inside_keeps_that_in_float32(tiny_bert, tmp_path):
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    torch.manual_seed(0)
    model = AutoModelForSequenceClassification.from_pretrained(tiny_bert, num_labels=1)
    model.save_pretrained(tmp_path)
    AutoTokenizer.from_pretrained(tiny_bert).save_pretrained(tmp_path)
    exact, half = load(tmp_path).score(PAIRS), load(tmp_path, bf16=True).score(PAIRS)
    assert np.abs(half - exact).max() < 0.05
    assert not np.array_equal(half, torch.from_numpy(half).bfloat16().float().numpy())


class Heard:
    def __init__(self) -> None:
        self.messages: list[str] = []

    def say(self, message: str) -> None:
        self.messages.append(message)


@pytest.mark.parametrize(
    ("flags", "warns"), [("avx2 avx512f", True), ("avx2 avx512_bf16", False), ("asimd bf16", False), (None, False)]
)
def test_a_processor_that_emulates_bf16_is_named_once(minilm, monkeypatch, flags, warns):
    monkeypatch.setattr(processor, "_cpuinfo", lambda: {} if flags is None else {"flags": flags})
    monkeypatch.setattr(bf16, "_warned", [])
    matcher = build(matcher_config(kind="dual_encoder", start=minilm, layers=1))
    heard = Heard()
    for reporter in (None, heard, heard):  # nobody is told by the first
        with reporting(reporter), in_bf16(matcher):
            pass
    assert ["has no bfloat16 products" in message for message in heard.messages] == [True] * warns
    monkeypatch.setattr(bf16, "_warned", [])
    with reporting(heard):
        bf16.warn_if_emulated("cuda")
    assert len(heard.messages) == warns
