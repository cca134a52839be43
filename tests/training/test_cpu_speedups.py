"""What makes a step faster changes neither its arithmetic nor the model that it leaves behind."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from limbeck.matchers import TextBatch, build, matcher_config
from limbeck.training.cpu_speedups import FastDropout, attention, dropped, faster, one_lookup

QUERIES = ["copy a file", "sort", "open the folder and read a line of text"]
DOCUMENTS = ["copy", "sort the list of numbers in place and return a new list", "file folder " * 20, "read a page"]
LISTS = torch.tensor([[0, 2, 1], [1, 3, 0], [3, 2, 1]])
KINDS = [
    {"kind": "dual_encoder"},
    {"kind": "dual_encoder", "separate": True},
    {"kind": "cross_encoder"},
    {"kind": "cross_encoder", "pooling": "segments"},
    {"kind": "colbert", "dim": 8},
    {"kind": "dipair", "tokens": [2, 2], "dim": 8},
    {"kind": "deformer"},
]


def made(start: str, **how):
    torch.manual_seed(0)
    return build(matcher_config(start=start, query_length=8, document_length=20, **how)).train()


def gradients(model, around, chunk):
    inputs = model.prepare(TextBatch(QUERIES, DOCUMENTS, LISTS), chunk)
    model.zero_grad()
    with around(model, inputs):
        loss = model(inputs).scores.square().mean()
    loss.backward()
    return float(loss.detach()), {
        name: value.grad.clone() for name, value in model.named_parameters() if value.grad is not None
    }


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.999])
def test_the_requested_share_is_dropped_and_the_mean_is_kept(rate):
    torch.manual_seed(3)
    values = torch.ones(700, 999, requires_grad=True)  # not a multiple of four
    found = dropped(values, rate)
    share = float((found == 0).float().mean())
    assert share == pytest.approx(rate, abs=5 * (rate * (1 - rate) / values.numel()) ** 0.5 + 1 / 65536)
    assert torch.allclose(found[found != 0], torch.tensor(1 / (1 - rate)), rtol=0.01)
    found.sum().backward()
    assert torch.equal(values.grad, found.detach())  # the same elements, and the same factor


def test_neighbours_are_dropped_independently():
    """Four elements share a draw of 64 bits: none of them may know of the others."""
    torch.manual_seed(4)
    gone = (dropped(torch.ones(200_000, 4), 0.25) == 0).double().numpy()
    assert np.abs(np.corrcoef(gone.T) - np.eye(4)).max() < 0.01
    assert np.abs(gone.mean(axis=0) - 0.25).max() < 0.005


def test_draws_come_from_torchs_generator():
    torch.manual_seed(5)
    first = dropped(torch.ones(100), 0.5)
    torch.manual_seed(5)
    assert torch.equal(dropped(torch.ones(100), 0.5), first)
    assert not torch.equal(dropped(torch.ones(100), 0.5), first)


@pytest.mark.parametrize("rate", [0.0, 1.0])
def test_nothing_or_everything_is_dropped_as_usual(rate):
    assert torch.equal(dropped(torch.ones(9), rate), torch.full((9,), 1.0 - rate))


@pytest.mark.parametrize("bias", [False, True], ids=["", "bias"])
@pytest.mark.parametrize("mask", ["none", "bool", "float"])
def test_attention_is_torchs_but_for_what_is_dropped(mask, bias):
    """With a rate that rounds to nothing, it has to be torch's own."""
    torch.manual_seed(1)
    query, key, value = (torch.randn(2, 3, 5, 4, requires_grad=True) for _ in range(3))
    real = torch.tensor([[True] * 5, [True] * 3 + [False] * 2])[:, None, None, :]
    given = {"none": None, "bool": real, "float": torch.where(real, 0.3, -1e30)}[mask]
    module = nn.Module()
    module.is_causal = False
    more = {"position_bias": torch.randn(1, 3, 5, 5)} if bias else {}  # as T5 passes it
    wanted, _ = attention(module, query, key, value, given, 0.0, 0.5, **more)
    found, _ = attention(module, query, key, value, given, 1e-9, 0.5, **more)
    assert bias == (not torch.allclose(wanted, attention(module, query, key, value, given, 0.0, 0.5)[0], atol=1e-3))
    assert torch.allclose(found, wanted, atol=1e-6)
    for one, other in zip(
        torch.autograd.grad(found.square().sum(), (query, key, value)),
        torch.autograd.grad(wanted.square().sum(), (query, key, value)),
        strict=True,
    ):
        assert torch.allclose(one, other, atol=1e-5)


def test_the_mean_over_many_draws_is_attention_without_dropout():
    torch.manual_seed(2)
    query, key, value = (torch.randn(1, 1, 4, 4) for _ in range(3))
    module = nn.Module()
    module.is_causal = False
    wanted, _ = attention(module, query, key, value, None, 0.0, 0.5)
    many = [part.expand(20_000, 1, 4, 4) for part in (query, key, value)]
    found, _ = attention(module, *many, None, 0.3, 0.5)
    assert torch.allclose(found.mean(dim=0), wanted[0], atol=0.03)
    assert found.std(dim=0).min() > 0.05


@pytest.mark.parametrize("how", KINDS, ids=lambda how: " ".join(str(part) for part in how.values()))
@pytest.mark.parametrize("chunk", [None, 1])
def test_one_look_into_the_token_table_has_the_gradients_of_many(tiny_bert, how, chunk):
    from contextlib import nullcontext

    model = made(tiny_bert, **how, inner_dropout=0)
    loss, wanted = gradients(model, lambda *_: nullcontext(), chunk)
    again, found = gradients(model, one_lookup, chunk)
    assert again == pytest.approx(loss, abs=1e-6) and found.keys() == wanted.keys()
    assert all(torch.allclose(found[name], wanted[name], atol=1e-6) for name in wanted)
    assert not any("forward" in vars(module) for module in model.modules())


@pytest.mark.parametrize("how", KINDS[:4], ids=lambda how: " ".join(str(part) for part in how.values()))
def test_a_model_is_not_changed(tiny_bert, how):
    model = made(tiny_bert, **how)
    before, described = [type(module) for module in model.modules()], model.identity()
    with faster(model):
        assert any(type(module) is FastDropout for module in model.modules())
        train = [model(model.prepare(TextBatch(QUERIES, DOCUMENTS, LISTS))).scores for _ in range(2)]
        assert not torch.equal(*train)  # there is dropout
        inside = model.eval()(model.prepare(TextBatch(QUERIES, DOCUMENTS, LISTS))).scores
    assert [type(module) for module in model.modules()] == before and model.identity() == described
    outside = model(model.prepare(TextBatch(QUERIES, DOCUMENTS, LISTS))).scores
    assert torch.equal(inside, outside)
