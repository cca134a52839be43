"""Padded lists: a mask of valid documents, and means and softmaxes over them.

Invalid values are replaced *before* any arithmetic, and results again after it. A NaN that is only masked afterwards
still reaches the gradient, because 0 * NaN is NaN.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from limbeck.errors import LimbeckError
from limbeck.objectives.base import Objective
from limbeck.signals import Signals, Targets


class Scored(NamedTuple):
    """Scores of both sides in one precision, 0 wherever `known` is False."""

    student: Tensor  # [B, K]
    teacher: Tensor  # [B, K], without gradient
    known: Tensor  # [B, K] bool: a real document that the teacher scored


class Judged(NamedTuple):
    """Two disjoint sets of documents; a document without a label is in neither."""

    positive: Tensor  # [B, K] bool
    negative: Tensor  # [B, K] bool


def student_scores(objective: Objective, student: Signals, targets: Targets) -> Tensor:
    """The student's scores [B, K] in at least float32; padding may contain anything."""
    scores = _checked(objective, "student", student, targets)
    return scores.to(torch.promote_types(scores.dtype, torch.float32))


def scored(objective: Objective, student: Signals, teacher: Signals | None, targets: Targets) -> Scored:
    """The scores of student and teacher on the documents that the teacher scored."""
    ours = student_scores(objective, student, targets)
    theirs = _checked(objective, "teacher", teacher, targets).detach().to(ours.dtype)
    known = targets.mask & ~theirs.isnan()
    return Scored(torch.where(known, ours, 0.0), torch.where(known, theirs, 0.0), known)


def judged(targets: Targets, among: Tensor | None = None) -> Judged:
    """Positives have a label above 0, negatives one of 0 or below; `among` narrows both."""
    among = targets.mask if among is None else targets.mask & among
    return Judged(among & (targets.labels > 0), among & (targets.labels <= 0))  # NaN is neither


def log_softmax(scores: Tensor, keep: Tensor) -> Tensor:
    """Log-softmax [B, K] over the documents of `keep`, 0 at the others."""
    lowest = torch.finfo(scores.dtype).min
    return torch.where(keep, torch.where(keep, scores, lowest).log_softmax(-1), 0.0)


def count(keep: Tensor, like: Tensor) -> Tensor:
    """How many documents count [B], in the dtype of `like`."""
    return keep.sum(-1).to(like.dtype)


def mean(values: Tensor, keep: Tensor) -> Tensor:
    """The mean [B] over the documents of `keep`; 0 if there are none."""
    return torch.where(keep, values, 0.0).sum(-1) / count(keep, values).clamp(min=1)


def centred(values: Tensor, keep: Tensor) -> Tensor:
    """The values minus their mean over `keep`, 0 at the others. [B, K]"""
    return torch.where(keep, values - mean(values, keep).unsqueeze(-1), 0.0)


def only_where(useful: Tensor, loss: Tensor) -> Tensor:
    """The loss [B] of queries with information, 0 for the others."""
    return torch.where(useful, loss, 0.0)


def _checked(objective: Objective, side: str, signals: Signals | None, targets: Targets) -> Tensor:
    scores = None if signals is None else signals.scores
    if scores is None:
        raise LimbeckError(f"{objective} needs {side} scores, but there are none; give the recipe a {side} that scores")
    if scores.shape != targets.mask.shape:
        found, wanted = list(scores.shape), list(targets.mask.shape)
        raise LimbeckError(
            f"{objective}: {side} scores have shape {found} where [queries, documents] = {wanted} was expected; "
            f"use a {side} with one output per document"
        )
    return scores
