"""Losses and gradients against formulas worked out independently (see reference.py)."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from limbeck.errors import LimbeckError
from limbeck.objectives import (
    OBJECTIVES,
    Objective,
    binary_ce,
    focal,
    m3se,
    margin_mse,
    mse,
    one_hot,
    rank_distil,
    softmax_ce,
)
from limbeck.signals import Signals, Targets

from .attention_reference import EXPECTED_OF_ATTENTION
from .batches import NAN, call, losses_of, one_list, random_batch
from .pair_reference import EXPECTED_OF_PAIRS
from .reference import EXPECTED, EXPECTED_OF_CLASSES, EXPECTED_OF_TOKENS, expected
from .test_embeddings import OBJECTIVE as OF_EMBEDDINGS  # by_hand has its formula

each = pytest.mark.parametrize("objective", EXPECTED, ids=str)


def test_every_objective_has_a_formula_to_be_compared_with() -> None:
    formulas = [*EXPECTED, *EXPECTED_OF_TOKENS, *EXPECTED_OF_CLASSES, *EXPECTED_OF_PAIRS, *EXPECTED_OF_ATTENTION]
    formulas.append(OF_EMBEDDINGS)
    assert {objective.name for objective in formulas} == set(OBJECTIVES)


@each
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_losses_and_gradients_equal_the_formulas(objective: Objective, seed: int) -> None:
    batch = random_batch(seed)
    losses, gradient = losses_of(objective, batch)
    by_hand = expected(objective, batch.student, batch.teacher, np.float32(batch.labels).astype(float), batch.mask)
    assert (by_hand[0] != 0).sum() >= 3  # the batch has queries that teach this objective something
    np.testing.assert_allclose(losses, by_hand[0], rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(gradient, by_hand[1], rtol=1e-10, atol=1e-12)


@each
def test_gradients_pass_gradcheck(objective: Objective) -> None:
    batch = random_batch(seed=3, queries=4, documents=5)
    student = torch.tensor(batch.student, requires_grad=True)
    assert torch.autograd.gradcheck(lambda scores: call(objective, scores, batch), (student,))


@each
def test_float32_agrees_with_float64(objective: Objective) -> None:
    batch = random_batch(seed=4)
    exact, exact_gradient = losses_of(objective, batch)
    rounded, rounded_gradient = losses_of(objective, batch, torch.float32)
    assert rounded.dtype == torch.float32
    torch.testing.assert_close(rounded.double(), exact, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(rounded_gradient.double(), exact_gradient, rtol=1e-5, atol=1e-5)


def test_numbers_small_enough_to_check_in_the_head() -> None:
    batch = one_list(student=[2.0, 1.0, 3.0], teacher=[5.0, 1.0, 0.0], labels=[1.0, 0.0, 0.0])
    value = {objective: losses_of(objective, batch)[0].item() for objective in EXPECTED}
    assert value[mse()] == 9 + 0 + 9
    assert value[margin_mse()] == (4 - 1) ** 2 + (5 - -1) ** 2
    assert value[margin_mse(pairs="all")] == pytest.approx(9 + 36 + (1 - -2) ** 2)
    assert value[m3se()] == (4 - 1) ** 2 + (3 - 1) ** 2  # j* is the second: the third has to come below it
    assert value[rank_distil()] == 9 + 1 + 9


def test_m3se_takes_the_hardest_negative_from_the_teacher_and_not_from_the_student() -> None:
    batch = one_list(student=[4.0, 9.0, 1.0], teacher=[4.0, 0.0, 2.0], labels=[1.0, 0.0, 0.0])
    losses, gradient = losses_of(m3se(), batch)
    assert losses.item() == (2 - 3) ** 2 + (9 - 1) ** 2
    assert gradient.tolist() == [[2.0, 16.0, -18.0]]


def test_equal_negatives_of_m3se_do_not_depend_on_their_order() -> None:
    batch = one_list(student=[4.0, 1.0, 3.0], teacher=[4.0, 2.0, 2.0], labels=[1.0, 0.0, 0.0])
    losses, gradient = losses_of(m3se(), batch)
    swapped, swapped_gradient = losses_of(m3se(), batch.columns([0, 2, 1]))
    assert losses.item() == swapped.item() == (2 - 1) ** 2
    torch.testing.assert_close(gradient[:, [0, 2, 1]], swapped_gradient)


def test_several_positives_share_the_one_hot_target_evenly_for_any_grade() -> None:
    graded = one_list([0.5, 1.0, -1.0, 2.0], [NAN] * 4, [3.0, 0.0, 1.0, 0.0])
    plain = one_list([0.5, 1.0, -1.0, 2.0], [NAN] * 4, [1.0, 0.0, 1.0, 0.0])
    assert losses_of(one_hot(), graded)[0] == losses_of(one_hot(), plain)[0]
    q = torch.tensor([0.5, 1.0, -1.0, 2.0], dtype=torch.float64).softmax(-1)
    torch.testing.assert_close(losses_of(one_hot(), plain)[1][0], q - torch.tensor([0.5, 0.0, 0.5, 0.0]))


def test_no_smoothing_is_bit_for_bit_what_one_hot_always_was() -> None:
    batch = random_batch(seed=11)
    scores = torch.tensor(batch.student, dtype=torch.float32, requires_grad=True)
    labels, mask = torch.tensor(batch.labels, dtype=torch.float32), torch.tensor(batch.mask)
    positive, known = mask & (labels > 0), mask & ~labels.isnan()
    log_p = torch.where(known, scores / 0.7, torch.finfo(torch.float32).min).log_softmax(-1)
    plain = -torch.where(positive, log_p, 0.0).sum(-1) / positive.sum(-1).clamp(min=1)
    plain = torch.where(positive.any(-1) & (known & ~positive).any(-1), plain, 0.0)
    (plain_gradient,) = torch.autograd.grad(plain.sum(), scores)
    for objective in (one_hot(tau=0.7), one_hot(tau=0.7, smoothing=0), one_hot(tau=0.7, smoothing=0.0)):
        losses, gradient = losses_of(objective, batch, torch.float32)
        assert torch.equal(losses, plain.detach())
        assert torch.equal(gradient, plain_gradient)


def test_a_smoothed_target_is_uniform_over_the_judged_documents_only() -> None:
    batch = one_list([1.0, 0.0, 0.0, 2.0], [NAN] * 4, [1.0, 0.0, NAN, 0.0])
    _, gradient = losses_of(one_hot(smoothing=0.3), batch)
    q = torch.tensor([1.0, 0.0, 2.0], dtype=torch.float64).softmax(-1)
    torch.testing.assert_close(gradient[0, [0, 1, 3]], q - torch.tensor([0.8, 0.1, 0.1], dtype=torch.float64))
    assert gradient[0, 2] == 0


@pytest.mark.parametrize("gamma", [0, 1e-6, 0.5, 1, 2, 50])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_focal_is_finite_with_zero_gradient_if_the_student_is_certain(gamma: float, dtype: torch.dtype) -> None:
    losses, gradient = losses_of(focal(gamma=gamma), one_list([900.0, 0.0], [NAN] * 2, [1.0, 0.0]), dtype)
    assert losses.tolist() == [0.0]
    assert (gradient == 0).all()


def test_binary_ce_reads_soft_labels_as_probabilities_and_grades_as_relevant() -> None:
    _, gradient = losses_of(binary_ce(), one_list([0.0, 0.0, 0.0, 0.0], [NAN] * 4, [0.25, 3.0, 0.0, -2.0]))
    assert gradient.tolist() == [[0.25, -0.5, 0.5, 0.5]]


def test_the_teacher_gets_no_gradient() -> None:
    teacher = torch.randn(2, 3, requires_grad=True)
    targets = Targets(mask=torch.ones(2, 3, dtype=torch.bool), labels=torch.tensor([[1.0, 0.0, 0.0]] * 2))
    for objective in EXPECTED:
        student = torch.randn(2, 3, requires_grad=True)
        objective(Signals(scores=student), Signals(scores=teacher), targets).sum().backward()
        assert student.grad is not None
        assert teacher.grad is None


@each
def test_an_objective_reads_nothing_that_it_does_not_declare(objective: Objective) -> None:
    batch = random_batch(seed=5)
    student = Signals(scores=torch.tensor(batch.student))
    teacher = Signals(scores=torch.tensor(batch.teacher)) if objective.needs_teacher else None
    labels = torch.tensor(batch.labels) if objective.needs_labels else torch.full(batch.labels.shape, NAN)
    losses = objective(student, teacher, Targets(mask=torch.tensor(batch.mask), labels=labels))
    torch.testing.assert_close(losses, losses_of(objective, batch)[0], rtol=1e-6, atol=1e-6)  # labels were float32


def test_labels_are_not_needed_for_all_pairs() -> None:
    assert margin_mse().needs_labels
    assert not margin_mse(pairs="all").needs_labels


def test_missing_teacher_scores_and_misfitting_shapes_are_named() -> None:
    targets = Targets(mask=torch.ones(2, 3, dtype=torch.bool), labels=torch.zeros(2, 3))
    student = Signals(scores=torch.zeros(2, 3))
    with pytest.raises(LimbeckError, match="softmax_ce needs teacher scores"):
        softmax_ce()(student, None, targets)
    with pytest.raises(LimbeckError, match="one_hot needs student scores"):
        one_hot()(Signals(), None, targets)
    with pytest.raises(LimbeckError, match=r"teacher scores have shape \[2, 1\] where .* \[2, 3\] was expected"):
        mse()(student, Signals(scores=torch.zeros(2, 1)), targets)
    with pytest.raises(LimbeckError, match=r"student scores have shape \[2, 3, 5\]"):
        binary_ce()(Signals(scores=torch.zeros(2, 3, 5)), None, targets)
