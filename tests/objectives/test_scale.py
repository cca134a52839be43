"""Standardised teacher scores."""

from __future__ import annotations

import math
import statistics

import numpy as np
import pytest
import torch

from limbeck.errors import LimbeckError
from limbeck.objectives import kl, softmax_ce, standardise_global, standardise_list
from limbeck.signals import Signals, Targets

from .batches import NAN, random_batch


def test_each_list_gets_zero_mean_and_unit_deviation_over_its_scored_documents() -> None:
    batch = random_batch(seed=1)
    result = standardise_list(torch.tensor(batch.teacher), torch.tensor(batch.mask)).numpy()
    for row in range(len(result)):
        known = np.flatnonzero(batch.mask[row] & ~np.isnan(batch.teacher[row]))
        scores = batch.teacher[row, known].tolist()
        if len(known) < 2:
            wanted = [0.0] * len(known)
        else:
            mean, std = statistics.fmean(scores), statistics.pstdev(scores)
            wanted = [(score - mean) / std for score in scores]
        np.testing.assert_allclose(result[row, known], wanted, rtol=1e-12)
        assert np.isnan(np.delete(result[row], known)).all()


def test_a_list_of_equal_scores_becomes_zeros_and_not_amplified_rounding() -> None:
    for score in (0.1, 11.3, 1e4, 0.0):
        scores = torch.full((1, 7), score)
        assert (standardise_list(scores, torch.ones(1, 7, dtype=torch.bool)) == 0).all()
    nearly = torch.tensor([[700.0, 700.0001, 700.0]])  # one step of float32 at that size
    assert (standardise_list(nearly, torch.ones(1, 3, dtype=torch.bool)) == 0).all()


def test_small_but_real_differences_are_kept() -> None:
    scores = torch.tensor([[1e-4, 2e-4, 3e-4]])
    result = standardise_list(scores, torch.ones(1, 3, dtype=torch.bool))
    torch.testing.assert_close(result, torch.tensor([[-1.0, 0.0, 1.0]]) * math.sqrt(1.5))


def test_the_result_does_not_depend_on_shift_and_scale_of_a_list() -> None:
    batch = random_batch(seed=2)
    scores, mask = torch.tensor(batch.teacher), torch.tensor(batch.mask)
    moved = standardise_list(1000 * scores - 77, mask)
    torch.testing.assert_close(moved, standardise_list(scores, mask), equal_nan=True)


def test_global_constants_keep_the_differences_between_lists() -> None:
    scores = torch.tensor([[10.0, 30.0, NAN], [20.0, 20.0, 50.0]])
    result = standardise_global(scores, mean=20.0, std=10.0)
    torch.testing.assert_close(result, torch.tensor([[-1.0, 1.0, NAN], [0.0, 0.0, 3.0]]), equal_nan=True)


@pytest.mark.parametrize(("mean", "std"), [(0.0, 0.0), (0.0, -1.0), (NAN, 1.0), (0.0, NAN), (0.0, math.inf)])
def test_constants_that_cannot_standardise_are_refused(mean: float, std: float) -> None:
    with pytest.raises(LimbeckError, match="cannot be standardised"):
        standardise_global(torch.ones(1, 2), mean, std)


def test_half_precision_scores_come_back_in_float32() -> None:
    scores = torch.tensor([[1.0, 2.0, 4.0]], dtype=torch.bfloat16)
    assert standardise_list(scores, torch.ones(1, 3, dtype=torch.bool)).dtype == torch.float32
    assert standardise_global(scores, 1.0, 2.0).dtype == torch.float32


def test_missing_scores_stay_missing_for_the_objectives() -> None:
    batch = random_batch(seed=3)
    scores, mask = torch.tensor(batch.teacher), torch.tensor(batch.mask)
    targets = Targets(mask=mask, labels=torch.tensor(batch.labels))
    student = Signals(scores=torch.tensor(batch.student))
    scaled = Signals(scores=standardise_global(scores, 0.0, 2.0))
    wanted = softmax_ce(tau_teacher=2)(student, Signals(scores=scores), targets)
    torch.testing.assert_close(softmax_ce()(student, scaled, targets), wanted)
    by_list = Signals(scores=standardise_list(scores, mask))
    assert kl()(student, by_list, targets).isfinite().all()
