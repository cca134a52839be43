"""Objectives that learn from labels only: training without distillation, or the hard-label part of a mixture."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from limbeck.objectives.base import Objective, check_number, check_tau, objective
from limbeck.objectives.lists import judged, log_softmax, mean, only_where, student_scores
from limbeck.signals import Signals, Targets

MOST_SMOOTHING = 0.999  # at 1 the labels would have no information


@objective
class one_hot(Objective):
    """Softmax cross-entropy against the labels (Defense Eq. 1; EmbedDistill Eq. 8; TCT's hard-label term).

        - sum_k target_k * log softmax(s / tau)_k,  target_k = (1 - smoothing) * y_k / sum(y) + smoothing / K

    Data: a positive and a negative per query, else 0. Several positives share the target evenly: any label above 0
    counts as 1. (Eq. 1 assumes one positive.) Documents without a label are not in the softmax.

    `smoothing` mixes the target with a uniform one over the K documents that have a label (Defense App. C.9), like a
    teacher without knowledge. In Table 8 it costs test quality, the more the stronger: 0.308 without, 0.292 at 0.9,
    0.278 at 0.99.

    Use it if there are labels but no teacher, and together with a distillation objective. With every in-batch pair in
    the list it is the contrastive loss of dense retrieval; a student with cosine scores needs a small tau (0.05) there.
    `binary_ce` judges each document separately. If grades should have different weights, provide them as teacher scores
    in a run and use `softmax_ce`. `focal` shifts weight from queries that are solved to the others.

    In a recipe: `one_hot`, `0.1 * one_hot(tau=0.05)`, `one_hot(smoothing=0.1)`.
    """

    tau: float = 1.0
    smoothing: float = 0.0

    needs_labels = True

    def __post_init__(self) -> None:
        check_tau(self, "tau")
        check_number(self, "smoothing", 0, MOST_SMOOTHING)

    def __call__(self, student: Signals, teacher: Signals | None, targets: Targets) -> Tensor:
        scores = student_scores(self, student, targets)
        positive, negative = judged(targets)
        log_p = log_softmax(scores / self.tau, positive | negative)
        loss = -torch.where(positive, log_p, 0.0).sum(-1) / positive.sum(-1).clamp(min=1)
        if self.smoothing:
            loss = (1 - self.smoothing) * loss - self.smoothing * mean(log_p, positive | negative)
        return only_where(positive.any(-1) & negative.any(-1), loss)


@objective
class focal(Objective):
    """Softmax cross-entropy in which a positive has less weight the surer the student is of it (Lin et al.).

        - sum_k y_k / sum(y) * (1 - p_k)^gamma * log p_k,  p = softmax(s / tau)

    With gamma = 0 it is `one_hot`. The gradient of a positive fades as p_k rises, so a step mainly changes queries that
    are still wrong. Data: as for `one_hot`: a positive and a negative per query, else 0; several positives share
    evenly. Each uses its own p_k, so two positives with p = 1/2 each do not count as solved.

    It was made for classes of very unequal size. Defense tried it against overfitting (App. C.10, Table 9), where it
    fitted the training queries less well and the test queries no better: 0.307 instead of 0.310 for plain
    cross-entropy. Use it to test this on your data, or if most training queries are easy and a few are clean and hard;
    not with noisy labels, because a false negative looks like a hard query.

    In a recipe: `focal`, `focal(gamma=1)`, `focal(gamma=2, tau=0.05)`.
    """

    gamma: float = 2.0
    tau: float = 1.0

    needs_labels = True

    def __post_init__(self) -> None:
        check_number(self, "gamma", 0)
        check_tau(self, "tau")

    def __call__(self, student: Signals, teacher: Signals | None, targets: Targets) -> Tensor:
        scores = student_scores(self, student, targets)
        positive, negative = judged(targets)
        log_p = log_softmax(scores / self.tau, positive | negative)
        # 1 - p, exact near p = 1; the floor keeps the gradient finite for p = 1 and gamma below 1
        doubt = (-torch.expm1(log_p)).clamp(min=torch.finfo(log_p.dtype).tiny)
        loss = -torch.where(positive, doubt**self.gamma * log_p, 0.0).sum(-1) / positive.sum(-1).clamp(min=1)
        return only_where(positive.any(-1) & negative.any(-1), loss)


@objective
class binary_ce(Objective):
    """Binary cross-entropy of each document's score against its label (EmbedDistill Eq. 9; DiPair Eq. 1 with labels).

        - sum_k y_k * log sigmoid(s_k) + (1 - y_k) * log(1 - sigmoid(s_k))

    A sum over the labelled documents, as printed; for pair tasks, which are lists of one, a sum and a mean are the
    same. Data: any label; neither a positive nor a negative is required. A label within [0, 1] is used directly, so a
    soft or graded label is a probability; a grade above 1 counts as 1, below 0 as 0.

    Use it for pair classification and regression, and if the score itself must have a meaning, such as for a
    threshold. For ranking only, `one_hot` is usually better: it compares the documents of a query and is not dominated
    by the many easy negatives. `soft_binary_ce` is the same loss against a teacher.

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
