"""How the objectives relate: limits and special cases that the paper states or that follow from the formulas."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from limbeck.objectives import (
    binary_ce,
    focal,
    kl,
    m3se,
    margin_mse,
    mse,
    one_hot,
    rank_distil,
    soft_binary_ce,
    softmax_ce,
)

from .batches import Batch, losses_of, one_list, random_batch, triples


def test_proposition_3_softmax_ce_becomes_margin_mse_as_tau_grows() -> None:
    batch = triples()
    _, margin = losses_of(margin_mse(), batch)
    errors = []
    for tau in (10, 100, 1000):
        _, gradient = losses_of(softmax_ce(tau=tau), batch)
        errors.append((tau**2 * gradient - margin / 8).abs().max().item())
    assert errors[-1] < 1e-5
    # sigmoid(z) = 1/2 + z/4 + O(z^3), so the error falls with tau^2
    assert errors[0] / errors[1] == pytest.approx(100, rel=0.2)
    assert errors[1] / errors[2] == pytest.approx(100, rel=0.2)


def test_hintons_factor_is_the_tau_squared_of_proposition_3() -> None:
    batch = triples()
    _, margin = losses_of(margin_mse(), batch)
    _, gradient = losses_of(softmax_ce(tau=1000, scale=True), batch)
    torch.testing.assert_close(gradient, margin / 8, rtol=0, atol=1e-5)


@pytest.mark.parametrize("documents", [2, 3, 8])
def test_for_longer_lists_the_limit_is_the_all_pairs_margin_mse_over_twice_k_squared(documents: int) -> None:
    rng = np.random.default_rng(documents)
    shape = (5, documents)
    batch = Batch(rng.normal(size=shape), rng.normal(size=shape), np.full(shape, np.nan), np.ones(shape, bool))
    _, margin = losses_of(margin_mse(pairs="all"), batch)
    _, gradient = losses_of(softmax_ce(tau=1e4, scale=True), batch)
    torch.testing.assert_close(gradient, margin / (2 * documents**2), rtol=0, atol=2e-4)


def test_a_cold_teacher_makes_softmax_ce_one_hot_on_the_teachers_best_document() -> None:
    batch = random_batch(seed=1)
    known = batch.mask & ~np.isnan(batch.teacher)
    best = np.where(known, batch.teacher, -np.inf).argmax(-1)
    labels = np.where(known, 0.0, np.nan)
    labels[np.arange(len(best)), best] = np.where(known.any(-1), 1.0, np.nan)
    losses, gradient = losses_of(one_hot(), replace(batch, labels=labels))
    cold_losses, cold_gradient = losses_of(softmax_ce(tau_teacher=1e-4), batch)
    assert (losses != 0).sum() >= 5
    torch.testing.assert_close(cold_losses, losses)
    torch.testing.assert_close(cold_gradient, gradient)


def test_a_cold_softmax_tends_to_the_student_s_excess_over_the_teachers_best_document() -> None:
    """Sec. 4.2 prints this limit for tau -> inf; it is the one for tau -> 0."""
    batch = one_list(student=[1.0, 2.5, -1.0], teacher=[3.0, 1.0, 0.0], labels=[1.0, 0.0, 0.0])
    tau = 1e-3
    assert tau * losses_of(softmax_ce(tau=tau), batch)[0].item() == pytest.approx(2.5 - 1.0, abs=1e-6)


def test_kl_is_softmax_ce_less_the_teachers_entropy_with_the_same_gradient() -> None:
    batch = random_batch(seed=2)
    ce, ce_gradient = losses_of(softmax_ce(tau=2), batch)
    divergence, kl_gradient = losses_of(kl(tau=2), batch)
    torch.testing.assert_close(kl_gradient, ce_gradient)
    for row in range(len(ce)):
        t = torch.tensor(batch.teacher[row][batch.mask[row] & ~np.isnan(batch.teacher[row])])
        entropy = torch.distributions.Categorical(logits=t / 2).entropy() if len(t) > 1 else torch.tensor(0.0).double()
        torch.testing.assert_close(ce[row] - divergence[row], entropy)
    assert (divergence >= 0).all()


def test_objectives_that_match_the_teacher_are_at_rest_when_student_and_teacher_agree() -> None:
    batch = random_batch(seed=3)
    agreed = replace(batch, student=np.nan_to_num(batch.teacher))
    zero_at_best = [mse(), kl(tau=0.5), margin_mse(), margin_mse(pairs="all"), m3se()]
    for objective in [*zero_at_best, softmax_ce(tau=0.5), soft_binary_ce()]:
        losses, gradient = losses_of(objective, agreed)
        torch.testing.assert_close(gradient, torch.zeros_like(gradient), rtol=0, atol=1e-12)
        if objective in zero_at_best:
            torch.testing.assert_close(losses, torch.zeros_like(losses), rtol=0, atol=1e-12)


def test_for_one_positive_and_one_negative_the_margin_objectives_are_one() -> None:
    batch = triples(seed=4)
    s, t = batch.student, batch.teacher
    hofstaetter = torch.tensor(((t[:, 0] - t[:, 1]) - (s[:, 0] - s[:, 1])) ** 2)
    for objective in (margin_mse(), margin_mse(pairs="all"), m3se()):
        torch.testing.assert_close(losses_of(objective, batch)[0], hofstaetter)


def test_with_a_single_negative_m3se_is_margin_mse() -> None:
    batch = one_list([1.0, 2.0, 0.5, 3.0], [2.0, 5.0, 4.0, 1.0], [1.0, 2.0, 1.0, 0.0])
    torch.testing.assert_close(losses_of(m3se(), batch), losses_of(margin_mse(), batch))


def test_without_negatives_above_the_threshold_rank_distil_is_mse_on_the_positives() -> None:
    batch = one_list([1.0, 2.0, -0.5, -3.0], [2.0, 5.0, 4.0, 1.0], [1.0, 2.0, 0.0, 0.0])
    positives = batch.columns([0, 1])
    assert losses_of(rank_distil(), batch)[0] == losses_of(mse(), positives)[0]


def test_without_gamma_focal_is_one_hot() -> None:
    batch = random_batch(seed=6)
    for dtype in (torch.float32, torch.float64):
        plain, focused = losses_of(one_hot(tau=0.5), batch, dtype), losses_of(focal(gamma=0, tau=0.5), batch, dtype)
        assert torch.equal(plain[0], focused[0])
        assert torch.equal(plain[1], focused[1])


def test_focal_is_one_hot_weighed_by_doubt_for_a_single_positive() -> None:
    batch = triples(seed=7)
    p = torch.tensor(batch.student).softmax(-1)[:, 0]
    torch.testing.assert_close(losses_of(focal(gamma=3), batch)[0], (1 - p) ** 3 * losses_of(one_hot(), batch)[0])


def test_label_smoothing_is_distillation_from_a_teacher_that_knows_nothing() -> None:
    """App. C.9: a mixture of the labels and of a uniform teacher over the judged documents."""
    batch = random_batch(seed=8)
    labels = batch.labels
    both = ((batch.mask & (labels > 0)).any(-1) & (batch.mask & (labels <= 0)).any(-1))[:, None]
    uniform = replace(batch, teacher=np.where(both & ~np.isnan(labels), 0.0, np.nan))
    smoothed, hard = losses_of(one_hot(smoothing=0.3), batch), losses_of(one_hot(), batch)
    ignorant = losses_of(softmax_ce(), uniform)
    for one, two, three in zip(smoothed, hard, ignorant, strict=True):
        torch.testing.assert_close(one, 0.7 * two + 0.3 * three)


def test_a_certain_teacher_makes_soft_binary_ce_binary_ce() -> None:
    batch = random_batch(seed=5)
    labelled = replace(batch, labels=np.where(np.isnan(batch.teacher), np.nan, batch.teacher > 0))
    certain = losses_of(soft_binary_ce(tau=1e-4), batch)
    torch.testing.assert_close(certain, losses_of(binary_ce(), labelled))
