"""Objectives that transfer differences of scores: they ignore a constant shift between teacher and student."""

from __future__ import annotations

import torch
from torch import Tensor

from limbeck.objectives.base import SCORES, Objective, check_choice, objective
from limbeck.objectives.lists import centred, count, judged, mean, only_where, scored
from limbeck.signals import Signals, Targets


@objective
class margin_mse(Objective):
    """The squared error of score margins (Defense Eq. 3; Hofstaetter et al.), over all pairs of a list (Sec. 4.1).

        pairs='judged':  sum_{i in P} sum_{j in N} ((t_i - t_j) - (s_i - s_j))^2
        pairs='all':     sum_{i < j}               ((t_i - t_j) - (s_i - s_j))^2

    Data: teacher scores; for 'judged' labels too (P: above 0), with a scored positive and a scored negative per query,
    else 0; for 'all' two scored documents, no labels (their order does not affect a square).
    A sum, as printed. For one positive and one negative both forms are Eq. 3 and equal sentence-transformers'
    MarginMSELoss; for one positive and n negatives theirs is the mean over the n, so ours is n times as large.

    Use it for triples with teacher scores, and if margins should keep the teacher's size. It requires every margin
    exactly, so the student needs a free scale: a cosine in [-1, 1] cannot reach a margin of 10. `m3se` requires only
    the margins that decide the ranking; `softmax_ce` is the smooth relative, with a bounded gradient.

    In a recipe: `margin_mse`, `margin_mse(pairs=all)`.
    """

    pairs: str = "judged"

    needs_teacher = SCORES

    @property
    def needs_labels(self) -> bool:
        return self.pairs == "judged"

    def __post_init__(self) -> None:
        check_choice(self, "pairs", ("judged", "all"))

    def __call__(self, student: Signals, teacher: Signals | None, targets: Targets) -> Tensor:
        s, t, known = scored(self, student, teacher, targets)
        if self.pairs == "all":
            return count(known, s) * _spread(centred(t, known) - centred(s, known), known)
        positive, negative = judged(targets, among=known)
        # Each side is centred separately: t - s would lose margins to rounding if one side is far from the other.
        error = centred(t, positive | negative) - centred(s, positive | negative)
        n_positive, n_negative = count(positive, s), count(negative, s)
        between = (mean(error, positive) - mean(error, negative)).square()
        within = n_negative * _spread(error, positive) + n_positive * _spread(error, negative)
        return within + n_positive * n_negative * between


@objective
class m3se(Objective):
    """Multi-margin MSE: match the margins to the hardest negative, keep the other negatives below it (Defense Eq. 4).

        sum_{i in P} ((t_i - t_j*) - (s_i - s_j*))^2 + sum_{j in N} max(0, s_j - s_j*)^2

    j* is the negative with the highest *teacher* score; among equals, which Eq. 4 leaves open, the one that the student
    scores highest, so that the order of the list has no effect. A sum, as printed. Data: labels (P: above 0) and
    teacher scores, with a scored positive and a scored negative per query, else 0.

    Use it for longer lists (the paper has 20): the other negatives only have to stay below j*, with any margin. With a
    single negative it is `margin_mse`. `rank_distil` is the same idea with scores instead of margins and a fixed
    threshold instead of s_j*. Like `margin_mse` it needs a student with a free scale.

    In a recipe: `m3se`.
    """

    needs_teacher = SCORES
    needs_labels = True

    def __call__(self, student: Signals, teacher: Signals | None, targets: Targets) -> Tensor:
        s, t, known = scored(self, student, teacher, targets)
        positive, negative = judged(targets, among=known)
        hardest = _hardest(s, t, negative)
        s_margin, t_margin = s - s.gather(-1, hardest), t - t.gather(-1, hardest)
        match = torch.where(positive, (t_margin - s_margin).square(), 0.0)
        excess = torch.where(negative, s_margin.relu().square(), 0.0)
        return only_where(positive.any(-1) & negative.any(-1), (match + excess).sum(-1))


def _spread(values: Tensor, keep: Tensor) -> Tensor:
    """The sum of squared deviations from the mean [B].

    It turns sums over pairs into sums over documents, so that memory grows with K and not with K^2. Over one set of n,
    sum_{i < j} (e_i - e_j)^2 = n * spread; over two sets each adds its spread times the size of the other, and the
    means add n_P * n_N * (mean_P - mean_N)^2. No term is negative, so nothing cancels.
    """
    return centred(values, keep).square().sum(-1)


def _hardest(student: Tensor, teacher: Tensor, negative: Tensor) -> Tensor:
    """The column of j* [B, 1]; an arbitrary one if there is no negative."""
    lowest = torch.finfo(teacher.dtype).min
    candidates = torch.where(negative, teacher, lowest)
    tied = negative & (candidates == candidates.amax(-1, keepdim=True))
    return torch.where(tied, student.detach(), lowest).argmax(-1, keepdim=True)
