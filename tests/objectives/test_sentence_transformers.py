"""Values and gradients equal those of the loss classes of sentence-transformers, fed with the same embeddings."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from sentence_transformers.sentence_transformer.losses import DistillKLDivLoss, MarginMSELoss
from torch import Tensor, nn

from limbeck.objectives import Objective, kl, margin_mse
from limbeck.signals import Signals, Targets


class Lookup(nn.Module):
    """A model that returns the embeddings it is given, as a SentenceTransformer returns those of texts."""

    def forward(self, features: dict[str, Tensor]) -> dict[str, Tensor]:
        return {"sentence_embedding": features["embedding"]}


LOOKUP: Any = Lookup()


def embeddings_and_teacher(negatives: int, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    torch.manual_seed(seed)
    queries = torch.randn(4, 6, dtype=torch.float64, requires_grad=True)
    documents = torch.randn(4, 1 + negatives, 6, dtype=torch.float64, requires_grad=True)
    return queries, documents, 3 * torch.randn(4, 1 + negatives, dtype=torch.float64)


def theirs(loss: nn.Module, queries: Tensor, documents: Tensor, teacher: Tensor) -> tuple[Tensor, ...]:
    columns = [{"embedding": queries}, *({"embedding": column} for column in documents.unbind(1))]
    value = loss(columns, teacher)
    return value.detach(), *torch.autograd.grad(value, (queries, documents))


def ours(objective: Objective, queries: Tensor, documents: Tensor, teacher: Tensor) -> tuple[Tensor, ...]:
    scores = (queries.unsqueeze(1) * documents).sum(-1)
    labels = torch.zeros_like(teacher)
    labels[:, 0] = 1
    targets = Targets(mask=torch.ones_like(teacher, dtype=torch.bool), labels=labels)
    value = objective(Signals(scores=scores), Signals(scores=teacher), targets).mean()
    return value.detach(), *torch.autograd.grad(value, (queries, documents))


@pytest.mark.parametrize("pairs", ["judged", "all"])
def test_margin_mse_of_triples_equals_margin_mse_loss(pairs: str) -> None:
    batch = embeddings_and_teacher(negatives=1)
    torch.testing.assert_close(ours(margin_mse(pairs=pairs), *batch), theirs(MarginMSELoss(LOOKUP), *batch))


@pytest.mark.parametrize("negatives", [2, 5])
def test_margin_mse_sums_where_margin_mse_loss_averages_over_negatives(negatives: int) -> None:
    batch = embeddings_and_teacher(negatives)
    averaged = tuple(part * negatives for part in theirs(MarginMSELoss(LOOKUP), *batch))
    torch.testing.assert_close(ours(margin_mse(), *batch), averaged)


@pytest.mark.parametrize(("temperature", "student", "teacher"), [(1, None, None), (2, None, None), (1, 0.5, 3)])
def test_scaled_kl_equals_distill_kl_div_loss(temperature: float, student: float | None, teacher: float | None) -> None:
    batch = embeddings_and_teacher(negatives=4)
    loss = DistillKLDivLoss(LOOKUP, temperature=temperature, student_temperature=student, teacher_temperature=teacher)
    objective = kl(tau=temperature, tau_student=student, tau_teacher=teacher, scale=True)
    torch.testing.assert_close(ours(objective, *batch), theirs(loss, *batch))
