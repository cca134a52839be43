"""Objectives that learn from labels alone: training without distillation, or the hard-label part of a mixture."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from limbeck.objectives.base import Objective, check_tau, objective
from limbeck.objectives.lists import judged, log_softmax, only_where, student_scores
from limbeck.signals import Signals, Targets


@objective
class one_hot(Objective):
    """Softmax cross-entropy against the labels (Defense Eq. 1; EmbedDistill Eq. 8; TCT's hard-label term).

        - sum_k y_k / sum(y) * log softmax(s / tau)_k

    Data: a positive and a negative per query, else 0. Several positives share the target evenly: a label above 0
    counts as 1, whatever its grade. (Eq. 1 assumes one positive.) Documents without a label are not in the softmax.

    Use it where there are labels and no teacher, and as the anchor beside a distillation objective. With every in-batch
    pair in the list it is the contrastive loss of dense retrieval; a student with cosine scores needs a small tau
    (0.05) there. `binary_ce` judges each document by itself. Grades that should weigh differently are teacher scores:
    bring them as a run and use `softmax_ce`.

    In a recipe: `one_hot`, `0.1 * one_hot(tau=0.05)`.
    """

    tau: float = 1.0

    needs_labels = True

    def __post_init__(self) -> None:
        check_tau(self, "tau")

    def __call__(self, student: Signals, teacher: Signals | None, targets: Targets) -> Tensor:
        scores = student_scores(self, student, targets)
        positive, negative = judged(targets)
        log_p = log_softmax(scores / self.tau, positive | negative)
        loss = -torch.where(positive, log_p, 0.0).sum(-1) / positive.sum(-1).clamp(min=1)
        return only_where(positive.any(-1) & negative.any(-1), loss)


@objective
class binary_ce(Objective):
    """Binary cross-entropy of each document's score against its label (EmbedDistill Eq. 9; DiPair Eq. 1 with labels).

        - sum_k y_k * log sigmoid(s_k) + (1 - y_k) * log(1 - sigmoid(s_k))

    A sum over the labelled documents, as printed; for pair tasks, which are lists of one, a sum and a mean are the
    same. Data: any label; neither a positive nor a negative is required. A label within [0, 1] is used as it is, so a
    soft or graded one is a probability; a grade above 1 counts as 1, one below 0 as 0.

    Use it for pair classification and regression, and wherever the score itself has to mean something, such as for a
    threshold. For ranking alone `one_hot` is usually better: it compares the documents of a query and is not led by the
    many easy negatives. `soft_binary_ce` is the same loss against a teacher.

    In a recipe: `binary_ce`.
    """

    needs_labels = True

    def __call__(self, student: Signals, teacher: Signals | None, targets: Targets) -> Tensor:
        positive, negative = judged(targets)
        known = positive | negative
        scores = torch.where(known, student_scores(self, student, targets), 0.0)
        labels = torch.where(known, targets.labels, 0.0).clamp(0, 1).to(scores.dtype)
        losses = binary_cross_entropy_with_logits(scores, labels, reduction="none")
        return torch.where(known, losses, 0.0).sum(-1)
