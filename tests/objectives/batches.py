"""Batches of lists for the tests: ragged, with gaps in what teacher and judges know."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from limbeck.objectives import Objective
from limbeck.signals import Signals, Targets

NAN = float("nan")


@dataclass(frozen=True)
class Batch:
    student: np.ndarray  # all [B, K]
    teacher: np.ndarray
    labels: np.ndarray
    mask: np.ndarray

    def columns(self, order: list[int] | np.ndarray) -> Batch:
        return Batch(self.student[:, order], self.teacher[:, order], self.labels[:, order], self.mask[:, order])


def random_batch(seed: int = 0, queries: int = 12, documents: int = 7, shift: float = 0.0) -> Batch:
    """Lists of 1 to K documents; a fifth of the scores and of the labels missing, grades from 0 to 2."""
    rng = np.random.default_rng(seed)
    shape = (queries, documents)
    teacher = rng.normal(0, 3, shape)
    teacher[rng.random(shape) < 0.2] = NAN
    labels = rng.choice([0.0, 0.0, 0.0, 1.0, 2.0, 0.4], shape)
    labels[rng.random(shape) < 0.2] = NAN
    lengths = np.concatenate([[documents], rng.integers(1, documents + 1, queries - 1)])
    mask = np.arange(documents) < lengths[:, None]
    return Batch(rng.normal(shift, 2, shape), teacher, labels, mask)


def triples(seed: int = 0, queries: int = 6) -> Batch:
    """One positive and one negative per query, both scored."""
    rng = np.random.default_rng(seed)
    shape = (queries, 2)
    labels = np.tile([1.0, 0.0], (queries, 1))
    return Batch(rng.normal(0, 2, shape), rng.normal(0, 3, shape), labels, np.ones(shape, bool))


def one_list(student: list[float], teacher: list[float], labels: list[float]) -> Batch:
    return Batch(np.array([student]), np.array([teacher]), np.array([labels]), np.ones((1, len(student)), bool))


def losses_of(objective: Objective, batch: Batch, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
    """The loss of each query [B], and the gradient of their sum with respect to the student's scores [B, K]."""
    student = torch.tensor(batch.student, dtype=dtype, requires_grad=True)
    losses = call(objective, student, batch)
    (gradient,) = torch.autograd.grad(losses.sum(), student)
    return losses.detach(), gradient


def call(objective: Objective, student: Tensor, batch: Batch) -> Tensor:
    teacher = Signals(scores=torch.tensor(batch.teacher, dtype=student.dtype))
    targets = Targets(mask=torch.tensor(batch.mask), labels=torch.tensor(batch.labels, dtype=torch.float32))
    return objective(Signals(scores=student), teacher, targets)
