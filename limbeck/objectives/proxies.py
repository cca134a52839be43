"""Objectives that transfer the geometry of a cross-encoder to a dual encoder (EmbedDistill Sec. 4.2).

A cross-encoder has no embedding of a single query or document. One with dual pooling has proxies of both, one for
each pair that it reads; one with a head has a single embedding of the pair. Both belong to pairs, so the teacher must
be live: it reads the lists inside the step.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from limbeck.errors import LimbeckError
from limbeck.objectives.base import Objective, check_choice, check_number, objective
from limbeck.objectives.lists import mean
from limbeck.signals import TEXT_SIGNALS, Signals, Sizes, Targets


@objective
class match_proxies(Objective):
    """The distance of the student's embeddings to a dual-pooled cross-encoder's proxies (EmbedDistill Eq. 5 and 4).

        1 / K * sum_k || p(q, d_k) - W q ||  +  documents / K * sum_k || p'(q, d_k) - W d_k ||

    q and d_k are the student's embeddings. p(q, d_k) and p'(q, d_k) are the teacher's proxies of the query and of the
    document in the pair (q, d_k). It is the norm, not its square (`squared=true` for that). The query's proxies differ
    between documents; the student's single vector for the query moves to their centre. By default only queries are
    matched, as in the paper's Table 4; `documents=1` is Eq. 4.

    W is the identity. If student and teacher differ in size, it is a matrix that is trained too and dropped at the
    end: there is no index of proxies, and the student's scores were trained without it.

    Data: lists; no labels. The teacher is a cross-encoder with `pooling: weighted`, `special` or `segments`, trained
    with `reconstruct` in addition to its ranking loss, and `live: true`. Padding is ignored.

    Use it with an objective on scores, with weight 1 as in the paper: by itself it does not train documents. The
    student's scores are inner products on the scale of the teacher's: with `pooling: segments` give the student
    `scale: 20`. `match_joint` is the baseline that the paper warns about.

    In a recipe: `objectives: [one_hot, softmax_ce, match_proxies]`.
    """

    documents: float = 0.0  # weight of the documents relative to the query
    squared: bool = False

    needs_student = TEXT_SIGNALS
    needs_teacher = frozenset({"query_proxies", "document_proxies"})

    def __post_init__(self) -> None:
        check_number(self, "documents", low=0)
        check_choice(self, "squared", (True, False))

    def heads(self, sizes: Sizes) -> dict[str, nn.Module]:
        assert sizes.teacher is not None  # a teacher with proxies has a size
        same = sizes.student == sizes.teacher
        return {} if same else {"projection": nn.Linear(sizes.student, sizes.teacher, bias=False)}

    def __call__(
        self, student: Signals, teacher: Signals | None, targets: Targets, heads: nn.ModuleDict | None = None
    ) -> Tensor:
        project = heads["projection"] if heads is not None and "projection" in heads else nn.Identity()
        queries, documents = _embeddings(self, student)
        proxies = _of_pairs(self, teacher.query_proxies if teacher else None, targets)
        loss = self._distance(project(queries).unsqueeze(1), proxies, targets)
        if self.documents:
            proxies = _of_pairs(self, teacher.document_proxies if teacher else None, targets)
            loss = loss + self.documents * self._distance(targets.per_list(project(documents)), proxies, targets)
        return loss

    def _distance(self, ours: Tensor, theirs: Tensor, targets: Targets) -> Tensor:
        """The mean over each list: [B, K or 1, dim], [B, K, dim] -> [B]."""
        return _mean_distance(ours, theirs, targets, self.squared)


@objective
class match_joint(Objective):
    """A baseline that fails: a transform of the student's pair should equal the cross-encoder's embedding of the pair.

        1 / K * sum_k || e(q, d_k) - f(q, d_k) ||,  f(q, d) = V gelu(U [q; d])

    e(q, d_k) is the input of the teacher's head (`pooling: cls` or `mean`). f is trained with the student and dropped
    at the end. EmbedDistill (Sec. 4.2) calls this naive: e moves to w for relevant pairs and to -w for the others, and
    has no more information about their texts than the score. The paper finds that it overfits and is worse than a
    student that is distilled from scores only. It is here so that you can test this on your own data; use
    `match_proxies`.

    Data: lists; no labels. The teacher is a cross-encoder with a head, `live: true`. Padding is ignored.

    In a recipe: `objectives: [one_hot, softmax_ce, match_joint]`.
    """

    squared: bool = False

    needs_student = TEXT_SIGNALS
    needs_teacher = frozenset({"pair_embeddings"})

    def __post_init__(self) -> None:
        check_choice(self, "squared", (True, False))

    def heads(self, sizes: Sizes) -> dict[str, nn.Module]:
        assert sizes.teacher is not None
        inner, outer = nn.Linear(2 * sizes.student, sizes.teacher), nn.Linear(sizes.teacher, sizes.teacher)
        return {"joint": nn.Sequential(inner, nn.GELU(), outer)}

    def __call__(
        self, student: Signals, teacher: Signals | None, targets: Targets, heads: nn.ModuleDict | None = None
    ) -> Tensor:
        assert heads is not None
        queries, documents = _embeddings(self, student)
        theirs = _of_pairs(self, teacher.pair_embeddings if teacher else None, targets)
        listed = targets.per_list(documents)  # [B, K, dim]
        both = torch.cat([queries.unsqueeze(1).expand_as(listed), listed], dim=-1)
        return _mean_distance(heads["joint"](both), theirs, targets, self.squared)


def _mean_distance(ours: Tensor, theirs: Tensor, targets: Targets, squared: bool) -> Tensor:
    apart = torch.where(targets.mask.unsqueeze(-1), ours - theirs.to(ours.dtype), 0.0)  # [B, K, dim]
    each = apart.square().sum(-1) if squared else torch.linalg.vector_norm(apart, dim=-1)
    return mean(each, targets.mask)


def _embeddings(objective: Objective, student: Signals) -> tuple[Tensor, Tensor]:
    """The student's embeddings in at least float32, like the heads; a bfloat16 student's are converted."""
    if student.queries is None or student.documents is None:
        raise LimbeckError(f"{objective} needs a student that shows embeddings; use a dual_encoder")
    dtype = torch.promote_types(student.queries.dtype, torch.float32)
    return student.queries.to(dtype), student.documents.to(dtype)


def _of_pairs(objective: Objective, shown: Tensor | None, targets: Targets) -> Tensor:
    """The teacher's vectors of pairs [B, K, dim], as constants."""
    if shown is None:
        raise LimbeckError(f"{objective} needs a live cross-encoder as teacher, and it shows nothing of pairs")
    if shown.shape[:-1] != targets.mask.shape:
        found, wanted = list(shown.shape), list(targets.mask.shape)
        problem = f"the teacher's vectors have shape {found} where [queries, documents] = {wanted} pairs were expected"
        raise LimbeckError(f"{objective}: {problem}; give the teacher the student's lists")
    return shown.detach()
