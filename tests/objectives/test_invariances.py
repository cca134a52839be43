"""What must make no difference: padding, order, missing scores, shifts, precision, and queries that teach nothing."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from limbeck.objectives import (
    Objective,
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

from .batches import NAN, Batch, call, losses_of, one_list, random_batch
from .reference import EXPECTED

each = pytest.mark.parametrize("objective", EXPECTED, ids=str)
each_with_teacher = pytest.mark.parametrize("objective", [o for o in EXPECTED if o.needs_teacher], ids=str)


def padded(batch: Batch, width: int, student: float, teacher: float, label: float) -> Batch:
    columns = (len(batch.mask), width)
    return Batch(
        np.hstack([batch.student, np.full(columns, student)]),
        np.hstack([batch.teacher, np.full(columns, teacher)]),
        np.hstack([batch.labels, np.full(columns, label)]),
        np.hstack([batch.mask, np.zeros(columns, bool)]),
    )


@each
@pytest.mark.parametrize(
    ("student", "teacher", "label"), [(0, 0, 0), (1e4, 1e4, 1), (NAN, NAN, NAN), (np.inf, -np.inf, 1)]
)
def test_padding_with_any_content_changes_nothing(
    objective: Objective, student: float, teacher: float, label: float
) -> None:
    batch = random_batch(seed=1)
    losses, gradient = losses_of(objective, batch)
    wide_losses, wide_gradient = losses_of(objective, padded(batch, 3, student, teacher, label))
    torch.testing.assert_close(wide_losses, losses)
    torch.testing.assert_close(wide_gradient[:, :-3], gradient)
    assert (wide_gradient[:, -3:] == 0).all()


@each
def test_the_order_of_the_documents_changes_nothing(objective: Objective) -> None:
    batch = random_batch(seed=2)
    losses, gradient = losses_of(objective, batch)
    order = np.random.default_rng(0).permutation(batch.student.shape[1])
    shuffled_losses, shuffled_gradient = losses_of(objective, batch.columns(order))
    torch.testing.assert_close(shuffled_losses, losses)
    torch.testing.assert_close(shuffled_gradient, gradient[:, order])


@each
def test_queries_do_not_see_each_other(objective: Objective) -> None:
    batch = random_batch(seed=3)
    losses, gradient = losses_of(objective, batch)
    for row in range(len(losses)):
        alone = Batch(*(part[row : row + 1] for part in (batch.student, batch.teacher, batch.labels, batch.mask)))
        loss_alone, gradient_alone = losses_of(objective, alone)
        torch.testing.assert_close(loss_alone[0], losses[row])
        torch.testing.assert_close(gradient_alone[0], gradient[row])


@each_with_teacher
def test_a_document_without_a_teacher_score_is_as_good_as_absent(objective: Objective) -> None:
    batch = random_batch(seed=4)
    unscored = np.isnan(batch.teacher)
    without = replace(batch, mask=batch.mask & ~unscored)
    garbage = replace(batch, student=np.where(unscored, NAN, batch.student))
    losses, gradient = losses_of(objective, batch)
    assert (gradient[torch.tensor(unscored)] == 0).all()
    for other in (without, garbage):
        other_losses, other_gradient = losses_of(objective, other)
        torch.testing.assert_close(other_losses, losses)
        torch.testing.assert_close(other_gradient, gradient)


@pytest.mark.parametrize("objective", [o for o in EXPECTED if o.needs_labels], ids=str)
def test_a_document_without_a_label_is_as_good_as_absent(objective: Objective) -> None:
    batch = random_batch(seed=5)
    unjudged = np.isnan(batch.labels)
    without = replace(batch, mask=batch.mask & ~unjudged)
    losses, gradient = losses_of(objective, batch)
    torch.testing.assert_close(losses_of(objective, without)[0], losses)
    assert (gradient[torch.tensor(unjudged)] == 0).all()


FROM_LABELS = [one_hot(), one_hot(smoothing=0.1), focal()]
SHIFT_BLIND_IN_STUDENT = [
    *FROM_LABELS,
    softmax_ce(tau_teacher=0.25),
    kl(),
    margin_mse(),
    margin_mse(pairs="all"),
    m3se(),
]


@pytest.mark.parametrize("objective", SHIFT_BLIND_IN_STUDENT, ids=str)
def test_softmax_and_margin_objectives_are_blind_to_a_shift_of_either_side(objective: Objective) -> None:
    batch = random_batch(seed=6)
    losses, gradient = losses_of(objective, batch)
    shift = np.linspace(-50, 700, len(batch.student))[:, None]  # another one for each query
    for moved in (replace(batch, student=batch.student + shift), replace(batch, teacher=batch.teacher - shift)):
        moved_losses, moved_gradient = losses_of(objective, moved)
        torch.testing.assert_close(moved_losses, losses)
        torch.testing.assert_close(moved_gradient, gradient)
    torch.testing.assert_close(gradient.sum(-1), torch.zeros(len(losses), dtype=torch.float64))


@pytest.mark.parametrize("objective", [mse(), rank_distil(), soft_binary_ce()], ids=str)
def test_objectives_of_single_scores_do_see_a_shift(objective: Objective) -> None:
    batch = random_batch(seed=6)
    moved = replace(batch, student=batch.student + 5)
    assert (losses_of(objective, moved)[0] - losses_of(objective, batch)[0]).abs().max() > 1


@pytest.mark.parametrize("objective", [margin_mse(), margin_mse(pairs="all"), m3se()], ids=str)
def test_margins_survive_float32_when_the_student_sits_far_from_the_teacher(objective: Objective) -> None:
    batch = random_batch(seed=7, shift=10_000)
    student, teacher = (np.float32(side).astype(float) for side in (batch.student, batch.teacher))
    batch = replace(batch, student=student, teacher=teacher)  # both precisions start from the same numbers
    exact, _ = losses_of(objective, batch)
    rounded, _ = losses_of(objective, batch, torch.float32)
    torch.testing.assert_close(rounded.double(), exact, rtol=1e-5, atol=1e-5)


@each
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_scores_are_computed_in_float32(objective: Objective, dtype: torch.dtype) -> None:
    batch = random_batch(seed=8)
    half = torch.tensor(batch.student, dtype=dtype).double().numpy()
    teacher = torch.tensor(batch.teacher, dtype=dtype).double().numpy()
    exact, exact_gradient = losses_of(objective, replace(batch, student=half, teacher=teacher))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        losses, gradient = losses_of(objective, batch, dtype)
    assert losses.dtype == torch.float32
    assert gradient.dtype == dtype
    torch.testing.assert_close(losses.double(), exact, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(gradient.double(), exact_gradient, rtol=2**-7, atol=1e-4)  # rounded on its way out


@each
@pytest.mark.parametrize("size", [1e4, -1e4])
def test_extreme_scores_stay_finite(objective: Objective, size: float) -> None:
    batch = random_batch(seed=9)
    extremes = [
        replace(batch, student=batch.student * size),
        replace(batch, teacher=batch.teacher * size),
        replace(batch, student=batch.student + size, teacher=batch.teacher - size),
    ]
    for extreme in extremes:
        losses, gradient = losses_of(objective, extreme, torch.float32)
        assert losses.isfinite().all()
        assert gradient.isfinite().all()


SILENT = {
    "nothing known": one_list([1.0, 2.0, 3.0], [NAN] * 3, [NAN] * 3),
    "no documents": Batch(np.ones((1, 2)), np.ones((1, 2)), np.ones((1, 2)), np.zeros((1, 2), bool)),
}
ONE_SIDED = {
    "positives only": one_list([1.0, 2.0], [3.0, 5.0], [1.0, 1.0]),
    "negatives only": one_list([1.0, 2.0], [3.0, 5.0], [0.0, 0.0]),
    "no labels": one_list([1.0, 2.0], [3.0, 5.0], [NAN, NAN]),
    "one document": one_list([1.0], [3.0], [1.0]),
}
ONE_SCORE = {
    "one document": ONE_SIDED["one document"],
    "one score": one_list([1.0, 2.0], [3.0, NAN], [1.0, 0.0]),
}
NO_SIGNAL = (
    [(objective, case, batch) for objective in EXPECTED for case, batch in SILENT.items()]
    + [
        (objective, case, batch)
        for objective in (*FROM_LABELS, margin_mse(), m3se())
        for case, batch in ONE_SIDED.items()
    ]
    + [
        (objective, case, batch)
        for objective in (softmax_ce(), kl(tau=2), margin_mse(), margin_mse(pairs="all"), m3se())
        for case, batch in ONE_SCORE.items()
    ]
    + [(rank_distil(), "no labels", ONE_SIDED["no labels"])]
)


@pytest.mark.parametrize(("objective", "case", "batch"), NO_SIGNAL, ids=[f"{o}: {case}" for o, case, _ in NO_SIGNAL])
def test_a_query_that_teaches_nothing_has_exactly_zero_loss_and_gradient(
    objective: Objective, case: str, batch: Batch
) -> None:
    losses, gradient = losses_of(objective, batch)
    assert losses.tolist() == [0.0]
    assert (gradient == 0).all()


def test_a_batch_in_pieces_adds_up_to_the_batch() -> None:
    batch = random_batch(seed=10, queries=8)
    student = torch.tensor(batch.student, requires_grad=True)
    for objective in EXPECTED:
        (whole,) = torch.autograd.grad(call(objective, student, batch).mean(), student)
        pieces = torch.zeros_like(whole)
        for rows in (slice(0, 3), slice(3, 8)):
            part = Batch(batch.student[rows], batch.teacher[rows], batch.labels[rows], batch.mask[rows])
            (piece,) = torch.autograd.grad(call(objective, student[rows], part).sum() / 8, student)
            pieces += piece
        torch.testing.assert_close(pieces, whole)
