"""Matching a cross-encoder's vectors of pairs: values and gradients against loops in float64."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import nn

from limbeck.errors import LimbeckError
from limbeck.objectives import match_joint, match_proxies, parse
from limbeck.signals import Signals, Sizes, Targets

from .pair_reference import joint_by_hand, proxies_by_hand

B, K, P, DIM = 3, 4, 5, 6
LISTS = torch.tensor([[0, 2, 1, 4], [1, 3, 0, 0], [3, 0, 0, 0]])
MASK = torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0], [1, 0, 0, 0]], dtype=torch.bool)


def batch(seed: int = 0, dim: int = DIM) -> tuple[Signals, Signals, Targets]:
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    student = Signals(queries=draw(B, DIM).requires_grad_(), documents=draw(P, DIM).requires_grad_())
    teacher = Signals(query_proxies=draw(B, K, dim), document_proxies=draw(B, K, dim), pair_embeddings=draw(B, K, dim))
    return student, teacher, Targets(mask=MASK, labels=torch.full((B, K), math.nan), lists=LISTS)


@pytest.mark.parametrize("squared", [False, True])
@pytest.mark.parametrize("documents", [0.0, 1.0, 0.3])
def test_losses_and_gradients_equal_the_formula(documents, squared):
    student, teacher, targets = batch()
    found = match_proxies(documents=documents, squared=squared)(student, teacher, targets)
    losses, query_gradient, document_gradient = proxies_by_hand(student, teacher, targets, documents, squared)
    np.testing.assert_allclose(found.detach(), losses, rtol=1e-10)
    found.sum().backward()
    np.testing.assert_allclose(student.queries.grad, query_gradient, rtol=1e-9, atol=1e-12)
    if documents:
        np.testing.assert_allclose(student.documents.grad, document_gradient, rtol=1e-9, atol=1e-12)
    else:
        assert student.documents.grad is None


def test_in_batch_lists_are_all_documents():
    student, _, _ = batch()
    proxies = torch.randn(B, P, DIM, dtype=torch.float64)
    targets = Targets(mask=torch.ones(B, P, dtype=torch.bool), labels=torch.zeros(B, P))
    found = match_proxies(documents=1)(student, Signals(query_proxies=proxies, document_proxies=proxies), targets)
    apart = (student.queries.unsqueeze(1) - proxies).norm(dim=-1) + (student.documents - proxies).norm(dim=-1)
    torch.testing.assert_close(found, apart.mean(-1))


def test_padding_reaches_neither_loss_nor_gradient():
    student, teacher, targets = batch()
    objective = match_proxies(documents=1)
    clean = objective(student, teacher, targets)
    for proxies in (teacher.query_proxies, teacher.document_proxies):
        proxies[~MASK] = math.nan
    dirty = objective(student, teacher, targets)
    torch.testing.assert_close(dirty, clean)
    dirty.sum().backward()
    assert student.queries.grad.isfinite().all() and student.documents.grad.isfinite().all()


def test_a_student_that_is_there_has_no_loss_and_no_gradient():
    student, _, targets = batch()
    there = student.queries.detach().unsqueeze(1).expand(B, K, DIM)
    loss = match_proxies()(student, Signals(query_proxies=there, document_proxies=there), targets)
    loss.sum().backward()
    assert loss.tolist() == [0.0] * B and student.queries.grad.abs().sum() == 0


def test_a_query_is_best_in_the_midst_of_its_proxies():
    """With the norm the best place is the geometric median, with its square the mean."""
    student, teacher, targets = batch()
    mean = torch.stack([teacher.query_proxies[row][MASK[row]].mean(0) for row in range(B)])
    student = Signals(queries=mean.requires_grad_(), documents=student.documents)
    (gradient,) = torch.autograd.grad(match_proxies(squared=True)(student, teacher, targets).sum(), mean)
    assert gradient.abs().max() < 1e-12


def test_no_gradient_reaches_the_teacher():
    student, teacher, targets = batch()
    teacher.query_proxies.requires_grad_()
    match_proxies()(student, teacher, targets).sum().backward()
    assert teacher.query_proxies.grad is None


def test_there_is_a_projection_only_if_sizes_differ():
    assert match_proxies().heads(Sizes(6, 6)) == {}
    heads = nn.ModuleDict(match_proxies().heads(Sizes(DIM, 9))).double()
    assert heads["projection"].weight.shape == (9, DIM) and match_proxies.folds == ()
    student, teacher, targets = batch(dim=9)
    found = match_proxies(documents=1)(student, teacher, targets, heads=heads)
    mapped = Signals(queries=heads["projection"](student.queries), documents=heads["projection"](student.documents))
    torch.testing.assert_close(found, match_proxies(documents=1)(mapped, teacher, targets))


@pytest.mark.parametrize("squared", [False, True])
def test_the_joint_transform_reads_query_and_document_of_each_pair(squared):
    student, teacher, targets = batch(dim=7)
    torch.manual_seed(0)
    heads = nn.ModuleDict(match_joint().heads(Sizes(DIM, 7))).double()
    found = match_joint(squared=squared)(student, teacher, targets, heads=heads)
    np.testing.assert_allclose(found.detach(), joint_by_hand(student, teacher, targets, heads, squared), rtol=1e-10)
    found.sum().backward()
    assert student.documents.grad.abs().sum() > 0 and heads["joint"][0].weight.grad.abs().sum() > 0


@pytest.mark.parametrize("objective", [match_proxies(documents=1), match_joint()])
def test_lower_precision_is_computed_in_float32(objective):
    student, teacher, targets = batch(dim=7)
    torch.manual_seed(0)
    heads = nn.ModuleDict(objective.heads(Sizes(DIM, 7)))
    rounded = Signals(queries=student.queries.bfloat16(), documents=student.documents.bfloat16())
    found = objective(rounded, teacher, targets, heads=heads)
    exact = Signals(queries=rounded.queries.float(), documents=rounded.documents.float())
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, objective(exact, teacher, targets, heads=heads))


@pytest.mark.parametrize("name", ["match_proxies", "match_proxies(documents=0.5, squared=True)", "match_joint"])
def test_names_read_back(name):
    assert str(parse(name)[1]) == name


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("match_proxies(documents=-1)", "documents=-1 is not allowed"),
        ("match_proxies(squared=2)", "squared=2 is not allowed"),
        ("match_joint(squared=maybe)", "squared='maybe' is not allowed"),
    ],
)
def test_arguments_that_cannot_be_are_refused(text, message):
    with pytest.raises(LimbeckError, match=message):
        parse(text)


def test_signals_that_are_missing_or_do_not_fit_are_named():
    student, teacher, targets = batch()
    with pytest.raises(LimbeckError, match="match_proxies needs a live cross-encoder as teacher"):
        match_proxies()(student, Signals(scores=torch.zeros(B, K)), targets)
    with pytest.raises(LimbeckError, match="match_proxies needs a student that shows embeddings; use a dual_encoder"):
        match_proxies()(Signals(scores=torch.zeros(B, K)), teacher, targets)
    wrong = Signals(query_proxies=teacher.query_proxies[:, :2], document_proxies=teacher.document_proxies)
    with pytest.raises(LimbeckError, match=r"have shape \[3, 2, 6\] where \[queries, documents\] = \[3, 4\] pairs"):
        match_proxies()(student, wrong, targets)
