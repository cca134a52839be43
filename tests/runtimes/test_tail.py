"""Pooling, projections and norms of one text in numpy are those of sentence-transformers' modules."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sentence_transformers.base.modules import Dense, Normalize
from sentence_transformers.sentence_transformer.modules import Dropout, LayerNorm, Pooling
from torch import nn

from limbeck.runtimes.measure import closeness, largest_difference
from limbeck.runtimes.tail import POOLINGS, pooled
from limbeck.runtimes.tail_of_modules import steps_of
from limbeck.stores.ragged import Ragged


@pytest.mark.parametrize("pooling", POOLINGS)
def test_every_step_is_that_of_the_module(pooling):
    torch.manual_seed(0)
    norm = LayerNorm(8)
    nn.init.normal_(norm.norm.weight)
    nn.init.normal_(norm.norm.bias)
    dense = [Dense(8, 6), Dense(6, 4, bias=False, activation_function=nn.Identity())]
    modules = [Pooling(8, pooling), norm, Dropout(0.5), *dense, Normalize()]
    states = torch.randn(1, 5, 8)
    features = {"token_embeddings": states, "attention_mask": torch.ones(1, 5, dtype=torch.long)}
    for module in modules:
        features = module.eval()(features)
    value = pooled(states[0].numpy(), steps_of(modules, prompt=False))
    assert value.dtype == np.float32
    assert np.allclose(value, features["sentence_embedding"][0].detach().numpy(), atol=1e-6)


def test_what_has_no_such_step_takes_the_long_way():
    assert steps_of([], False) is None
    assert steps_of([Normalize()], False) is None
    assert steps_of([Pooling(8, "weightedmean")], False) is None
    assert steps_of([Pooling(8, ("mean", "cls"))], False) is None
    assert steps_of([Pooling(8, "mean", include_prompt=False)], True) is None
    assert steps_of([Pooling(8, "mean", include_prompt=False)], False) is not None
    assert steps_of([Pooling(8), Dense(8, 8, use_residual=True)], False) is None
    assert steps_of([Pooling(8), Dense(8, 8, activation_function=nn.GELU())], False) is None
    assert steps_of([Pooling(8), Dense(8, 8, module_output_name="scores")], False) is None


def test_closeness_is_a_mean_cosine_or_a_correlation():
    left, right = np.array([[1.0, 0.0], [0.0, 2.0]]), np.array([[3.0, 0.0], [1.0, 1.0]])
    assert np.isclose(closeness(left, right), (1 + np.sqrt(0.5)) / 2)
    slots = np.array([[[1.0, 0.0], [0.0, 0.0]]])  # the second slot is empty
    assert closeness(slots, slots) == 1.0
    assert np.isclose(closeness(Ragged.from_list([left]), Ragged.from_list([right])), (1 + np.sqrt(0.5)) / 2)
    assert np.isclose(closeness(np.array([1.0, 2.0, 3.0]), np.array([2.0, 4.0, 6.0])), 1.0)
    assert np.isclose(closeness(np.array([[1.0], [2.0], [3.0]]), np.array([[3.0], [2.0], [1.0]])), -1.0)


@pytest.mark.parametrize("exact", [[2.0], [2.0, 2.0, 2.0], [[2.0]], [0.0, 0.0]])
def test_scores_without_a_correlation_have_to_be_equal(exact):
    exact = np.array(exact)
    assert closeness(exact + 1e-5, exact) == 1.0
    assert closeness(exact + 1e-2, exact) == 0.0
    assert closeness(np.array([1.0, 2.0]), np.array([3.0, 3.0])) == 0.0


def test_outputs_that_are_no_numbers_or_zeros_are_not_near():
    exact = np.array([1.0, 2.0, 3.0])
    assert closeness(exact * np.nan, exact) == 0.0
    assert closeness(np.full((2, 3), np.nan), np.ones((2, 3))) == 0.0
    assert closeness(np.array([[0.0, 0.0], [1.0, 1.0]]), np.ones((2, 2))) == pytest.approx(0.5)


def test_the_largest_difference_is_a_share_of_the_largest_output():
    assert np.isclose(largest_difference(np.array([1.0, -4.02]), np.array([1.001, -4.0])), 0.02 / 4)
    assert largest_difference(np.zeros(3), np.zeros(3)) == 0.0
