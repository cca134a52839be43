"""Objectives that transfer a teacher's scores to the student, document by document or as a distribution."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from limbeck.errors import LimbeckError
from limbeck.objectives.base import SCORES, Objective, check_choice, check_number, check_tau, objective
from limbeck.objectives.lists import judged, log_softmax, only_where, scored
from limbeck.signals import Signals, Targets


@objective
class mse(Objective):
    """Logit matching: the squared error of the scores (Defense Sec. 2 and 4.1; EmbedDistill Eq. 12).

        sum_k (t_k - s_k)^2

    A sum over the scored documents, as printed, in spite of the name. Data: teacher scores; one document is enough.

    Use it if the student has to reproduce the score itself: pair regression, calibrated scores. It assumes that both
    models score on one scale. A dual encoder's dot products can differ by hundreds from a cross-encoder's logits, and
    then its capacity is spent on the shift; `margin_mse` is the same idea without the shift, and `softmax_ce` also has
    temperatures for the scale.

    In a recipe: `mse`.
    """

    needs_teacher = SCORES

    def __call__(self, student: Signals, teacher: Signals | None, targets: Targets) -> Tensor:
        s, t, _ = scored(self, student, teacher, targets)
        return (t - s).square().sum(-1)


@dataclass(frozen=True, repr=False)
class _SoftmaxMatching(Objective):
    """Shared by `softmax_ce` and `kl`: a temperature for each side, Hinton's factor, and which documents count."""

    tau: float = 1.0
    tau_teacher: float | None = None
    tau_student: float | None = None
    scale: bool = False
    over: str = "all"

    needs_teacher = SCORES

    def __post_init__(self) -> None:
        check_tau(self, "tau")
        for side in ("tau_teacher", "tau_student"):
            if getattr(self, side) is not None:
                check_tau(self, side)
        check_choice(self, "scale", (True, False))
        check_choice(self, "over", ("all", "own"))
        if self.tau != 1.0 and None not in (self.tau_teacher, self.tau_student):
            raise LimbeckError(f"{self}: tau has no effect with tau_teacher and tau_student; leave it out")

    @property
    def temperatures(self) -> tuple[float, float]:
        """The temperatures of teacher and student."""
        return (
            self.tau if self.tau_teacher is None else self.tau_teacher,
            self.tau if self.tau_student is None else self.tau_student,
        )

    def cross_entropy(self, student: Signals, teacher: Signals | None, targets: Targets, kl: bool) -> Tensor:
        """The cross-entropy of student and teacher [B], minus the teacher's own entropy if `kl`."""
        s, t, known = scored(self, student, teacher, targets)
        if self.over == "own" and targets.own is not None:
            known = known & targets.own
        tau_teacher, tau_student = self.temperatures
        log_teacher, log_student = log_softmax(t / tau_teacher, known), log_softmax(s / tau_student, known)
        surprise = log_teacher - log_student if kl else -log_student  # 0 for unscored documents
        loss = (log_teacher.exp() * surprise).sum(-1)
        return only_where(known.sum(-1) >= 2, loss * tau_student**2 if self.scale else loss)


@objective
class softmax_ce(_SoftmaxMatching):
    """Probability matching: cross-entropy of the two softmax distributions (Defense Eq. 1; EmbedDistill Eq. 10).

        - sum_k softmax(t / tau_teacher)_k * log softmax(s / tau_student)_k

    `tau` is the temperature of both sides; `tau_teacher` and `tau_student` override it for one side (TCT has 0.25 on
    the teacher's side only). `scale` multiplies by tau_student^2, which keeps the gradient's size as both temperatures
    rise (Hinton et al.); this only matters if objectives are mixed. `over=own` leaves out documents that are in a
    query's list only because of another query in the batch (TCT's triplet variant). Data: two scored documents per
    query, else 0; no label.

    The first choice for ranking, and for queries without labels. A constant shift of either side makes no difference,
    and the temperatures take care of the scale. As tau -> inf, tau^2 times its gradient becomes 1/8 of that of
    `margin_mse` for two documents (Prop. 3), and 1 / (2 K^2) of that of its all-pairs form for K. As tau_teacher -> 0
    it becomes `one_hot` on the teacher's best document. (Sec. 4.2 prints the limit in which only that document counts
    for tau -> inf; it holds for tau -> 0.) So a temperature far below the spread of the teacher's scores loses all the
    teacher's information about the other documents.

    In a recipe: `softmax_ce`, `softmax_ce(tau=2, scale=true)`, `0.9 * softmax_ce(tau_teacher=0.25)`.
    """

    def __call__(self, student: Signals, teacher: Signals | None, targets: Targets) -> Tensor:
        return self.cross_entropy(student, teacher, targets, kl=False)


@objective
class kl(_SoftmaxMatching):
    """Kullback-Leibler divergence from the student's softmax to the teacher's (TCT Eq. 6; Defense Prop. 3).

        sum_k p_k * (log p_k - log softmax(s / tau_student)_k),  p = softmax(t / tau_teacher)

    `softmax_ce` minus the teacher's entropy: the same arguments and gradients, but the loss is 0 if student and teacher
    agree, so that a curve shows what is left to learn. Data: two scored documents per query, else 0.

    (Eq. 6 of TCT prints a sum over documents of divergences: it is one divergence per query. Prop. 3 of Defense calls
    the cross-entropy KL_bin; that holds up to the entropy, and the KL_bin printed below it has the wrong sign on its
    second half.) With `scale=true` it equals sentence-transformers' DistillKLDivLoss.

    In a recipe: `kl(tau_teacher=0.25)`, `kl(tau=2, scale=true)`.
    """

    def __call__(self, student: Signals, teacher: Signals | None, targets: Targets) -> Tensor:
        return self.cross_entropy(student, teacher, targets, kl=True)


@objective
class soft_binary_ce(Objective):
    """Binary cross-entropy against the teacher's soft labels (DiPair Eq. 1 and Sec. 4.3; EmbedDistill Eq. 11).

        - sum_k y_k * log sigmoid(s_k) + (1 - y_k) * log(1 - sigmoid(s_k)),  y_k = sigmoid(t_k / tau)

    The temperature is on the teacher's side only, as in DiPair. A sum over the scored documents; lists of one are
    pairs. Data: teacher scores that are logits (not yet probabilities); one document is enough. (DiPair says of Eq. 1
    that p_i comes from the teacher's logits: that describes the teacher's own training; here it is the student's.)

    Use it to distil pair classifiers and regressors, where each pair is scored separately. Unlike `mse` it does not
    care how far beyond certainty a score is. For the order of a list see `softmax_ce`.

    In a recipe: `soft_binary_ce`, `soft_binary_ce(tau=2)`.
    """

    tau: float = 1.0

    needs_teacher = SCORES

    def __post_init__(self) -> None:
        check_tau(self, "tau")

    def __call__(self, student: Signals, teacher: Signals | None, targets: Targets) -> Tensor:
        s, t, known = scored(self, student, teacher, targets)
        losses = binary_cross_entropy_with_logits(s, (t / self.tau).sigmoid(), reduction="none")
        return torch.where(known, losses, 0.0).sum(-1)


@objective
class rank_distil(Objective):
    """RankDistil-B: match the positives' scores, keep negatives below a threshold (Defense Sec. 4.3).

        sum_{i in P} (t_i - s_i)^2 + sum_{j in N} max(0, s_j - gamma0)^2

    Data: labels (P: above 0) and teacher scores. Each half counts separately, so a query with only positives or only
    negatives still has a loss. A document that the teacher did not score is ignored, even if it is a negative.

    It spends no capacity on the order of the negatives, but like `mse` it needs both models on one scale: gamma0 should
    be just above the teacher's negatives. `m3se` is the same idea with margins, and takes its threshold from the list.

    In a recipe: `rank_distil`, `rank_distil(gamma0=-5)`.
    """

    gamma0: float = 0.0

    needs_teacher = SCORES
    needs_labels = True

    def __post_init__(self) -> None:
        check_number(self, "gamma0")

    def __call__(self, student: Signals, teacher: Signals | None, targets: Targets) -> Tensor:
        s, t, known = scored(self, student, teacher, targets)
        positive, negative = judged(targets, among=known)
        match = torch.where(positive, (t - s).square(), 0.0)
        excess = torch.where(negative, (s - self.gamma0).relu().square(), 0.0)
        return (match + excess).sum(-1)
