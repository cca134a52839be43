"""Several scores per pair: one of C classes (DiPair Sec. 3, multi-class tasks). Pairs are lists of one."""

from __future__ import annotations

import torch
from torch import Tensor

from limbeck.errors import LimbeckError
from limbeck.objectives.base import SCORES, Objective, check_number, check_tau, objective
from limbeck.signals import Signals, Targets


@objective
class class_ce(Objective):
    """Cross-entropy of the classes' scores against the label (DiPair Sec. 3).

        - log softmax(s)_y

    The label is a class number from 0 to C - 1, or a soft label for each class. A sum over the labelled documents, as
    `binary_ce`; for pairs a sum and a mean are the same. `smoothing` spreads that share of the label over all classes.
    Data: a student with an output for each class (`outputs: C`). `soft_class_ce` is the same loss against a teacher.

    In a recipe: `class_ce`, `class_ce(smoothing=0.1)`.
    """

    smoothing: float = 0.0

    needs_labels = True

    def __post_init__(self) -> None:
        check_number(self, "smoothing", 0, 1)

    def __call__(self, student: Signals, teacher: Signals | None, targets: Targets) -> Tensor:
        scores = _class_scores(self, "student", student, targets)
        count = scores.shape[-1]
        labels = targets.labels
        known = targets.mask & ~(labels.isnan() if labels.dim() == 2 else labels.isnan().any(-1))
        if labels.dim() == 2:
            number = torch.where(known, labels, 0.0).long()
            if (number != torch.where(known, labels, 0.0)).any():
                raise LimbeckError(f"{self}: a label is not a whole number; label classes 0 to {count - 1}")
            if (number >= count).any() or (number < 0).any():
                wrong = int(number.max() if (number >= count).any() else number.min())
                raise LimbeckError(
                    f"{self}: label {wrong} is not one of {count} classes; set outputs to the number of classes"
                )
            wanted = torch.nn.functional.one_hot(number, count).to(scores.dtype)
        elif labels.shape[-1] != count:
            problem = f"soft labels have {labels.shape[-1]} numbers, but the model has {count} outputs"
            raise LimbeckError(f"{self}: {problem}; set outputs to the number of classes")
        else:
            wanted = torch.where(known.unsqueeze(-1), labels, 0.0).to(scores.dtype)
        wanted = (1 - self.smoothing) * wanted + self.smoothing / count
        losses = -(wanted * scores.log_softmax(-1)).sum(-1)  # [B, K]
        return torch.where(known, losses, 0.0).sum(-1)


@objective
class soft_class_ce(Objective):
    """Cross-entropy of the student's classes against the teacher's soft labels (DiPair Eq. 1 for several classes).

            - sum_c softmax(t / tau)_c * log softmax(s)_c

        The temperature is on the teacher's side only, as for `soft_binary_ce`, which two classes come to: with scores
        (0, z) both are the same. Data: teacher and student with the same classes.
    The temperature is on the teacher's side only, as in `soft_binary_ce`, which is the case of two classes: with scores
    (0, z) both are equal. Data: teacher and student with the same classes.
    """

    tau: float = 1.0

    needs_teacher = SCORES

    def __post_init__(self) -> None:
        check_tau(self, "tau")

    def __call__(self, student: Signals, teacher: Signals | None, targets: Targets) -> Tensor:
        s = _class_scores(self, "student", student, targets)
        t = _class_scores(self, "teacher", teacher, targets).detach().to(s.dtype)
        if s.shape != t.shape:
            problem = f"the teacher has {t.shape[-1]} classes, but the student has {s.shape[-1]}"
            raise LimbeckError(f"{self}: {problem}; set student.outputs to the number of the teacher's classes")
        known = targets.mask & ~t.isnan().any(-1)
        wanted = (torch.where(known.unsqueeze(-1), t, 0.0) / self.tau).softmax(-1)
        losses = -(wanted * s.log_softmax(-1)).sum(-1)
        return torch.where(known, losses, 0.0).sum(-1)


def _class_scores(owner: Objective, side: str, signals: Signals | None, targets: Targets) -> Tensor:
    """Scores [B, K, C] in at least float32."""
    scores = None if signals is None else signals.scores
    if scores is None:
        raise LimbeckError(f"{owner} needs {side} scores, but there are none; give the recipe a {side} that scores")
    if scores.dim() != 3 or scores.shape[:2] != targets.mask.shape:
        remedy = f"use a {side} with an output for each class"
        raise LimbeckError(f"{owner}: {side} scores have shape {list(scores.shape)}, not [pairs, 1, classes]; {remedy}")
    return scores.to(torch.promote_types(scores.dtype, torch.float32))
