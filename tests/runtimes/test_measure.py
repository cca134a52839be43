"""What is measured of a runtime: closeness of queries and documents apart, and padding."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from limbeck.matchers import build, matcher_config
from limbeck.matchers.encoders import encoders
from limbeck.runtimes import measure as measuring
from limbeck.runtimes.measure import measure
from limbeck.runtimes.padding import counted_padding
from limbeck.runtimes.sample import Sample
from limbeck.runtimes.use import use_runtime
from tests.runtimes.conftest import QUERIES, TEXTS

SAMPLE = Sample(QUERIES, TEXTS, "texts of the test")
LENGTHS = {"query_length": 12, "document_length": 24}


@pytest.fixture
def matcher(tiny_bert):
    torch.manual_seed(0)
    return build(matcher_config(start=tiny_bert, dim=8, **LENGTHS))


def test_queries_that_are_far_off_one_by_one_count(matcher, monkeypatch):
    """Documents are as in torch; the short way of a single query turns one of three vectors around."""
    signs = iter([-1, 1, 1] * 100)

    def use(given, runtime, sample=None):
        use_runtime(given, runtime, sample)
        if runtime == "onnx":
            way = given.tower.single["query"]
            given.tower.single["query"] = lambda text: next(signs) * way(text)
        return given

    monkeypatch.setattr(measuring, "use_runtime", use)
    torch_row, onnx_row = measure(matcher, SAMPLE, [1], ["torch", "onnx"])
    assert torch_row.closeness == 1.0
    assert onnx_row.closeness == pytest.approx(1 / 3, abs=1e-4)  # of three queries


@pytest.mark.parametrize("kind", ["dual_encoder", "cross_encoder", "colbert", "dipair", "siamese", "deformer"])
def test_float32_is_close_in_every_kind(kind, tiny_bert):
    torch.manual_seed(0)
    own = {"colbert": {"dim": 8}, "dipair": {"tokens": (2, 4), "dim": 16, "head_width": 32}}.get(kind, {})
    matcher = build(matcher_config(kind=kind, start=tiny_bert, **LENGTHS, **own))
    rows = measure(matcher, SAMPLE, [1], ["torch", "onnx"])
    assert [row.runtime for row in rows] == ["torch", "onnx"]
    assert rows[1].closeness == pytest.approx(1.0, abs=1e-5)
    assert all(0 <= row.padding < 1 for row in rows)


def test_padding_is_the_share_of_tokens_that_are_none(matcher):
    """Two texts in one pass: 3 and 5 tokens with their marks, so 2 of 10 are padding."""
    with counted_padding(encoders(matcher)) as padding, torch.inference_mode():
        assert padding.share is None
        matcher.tower(matcher.tower.prepare(["file", "copy a file"], "document"))
        assert (padding.all, padding.real) == (10, 8) and np.isclose(padding.share, 0.2)
    matcher.encode_document(["file"])
    assert padding.all == 10
