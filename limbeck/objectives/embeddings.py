"""Objectives that transfer a teacher's geometry to the student: its embeddings, not its scores."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import normalize

from limbeck.errors import LimbeckError
from limbeck.objectives.base import Objective, check_choice, objective
from limbeck.signals import Signals, Targets

SIDES = {
    "both": frozenset({"queries", "documents"}),
    "queries": frozenset({"queries"}),
    "documents": frozenset({"documents"}),
}


@objective
class match_embeddings(Objective):
    """Embedding matching (EmbedDistill Eq. 4, queries and documents; Eq. 5, queries only).

        || q' - q ||  +  1/K sum_k || d'_k - d_k ||

    q and d_k are the student's embeddings of a query and of the documents in its list, q' and d'_k the teacher's. It is
    the norm, not its square: its gradient has the same length at any distance.

    Data: texts. No labels and no lists are needed: in a stage with only this objective, every text is one example: all
    training queries and all documents. Together with an objective on scores, a query counts with its list.

    `of` is `both`, `queries` or `documents`. `distance` is `norm` (as printed), `squared`, or `cosine` (1 - cosine).
    `unit=True` compares directions: both vectors are first normalised to length 1. Use it for a student with a `scale`.

    Student and teacher need embeddings of one size. If the student's are smaller, the run adds a projection, which is
    saved with the student, so its vectors are in the teacher's space.

    In a recipe: `match_embeddings`, `5 * match_embeddings(of=queries)`.
    """

    of: str = "both"
    distance: str = "norm"
    unit: bool = False

    takes_texts = True

    def __post_init__(self) -> None:
        check_choice(self, "of", tuple(SIDES))
        check_choice(self, "distance", ("norm", "squared", "cosine"))
        check_choice(self, "unit", (True, False))
        if self.unit and self.distance == "cosine":
            raise LimbeckError(f"{self}: unit has no effect with distance='cosine'; leave it out")

    @property
    def needs_student(self) -> frozenset[str]:  # type: ignore[override]
        return SIDES[self.of]

    @property
    def needs_teacher(self) -> frozenset[str]:  # type: ignore[override]
        return SIDES[self.of]

    def __call__(self, student: Signals, teacher: Signals | None, targets: Targets) -> Tensor:
        queries = self._distances("queries", student, teacher)  # [B]
        documents = self._distances("documents", student, teacher)  # [P], each distinct document once
        if targets.texts is not None:  # every text is an example
            return torch.cat([queries, documents[targets.texts]])
        if self.of == "queries":
            return queries
        listed = torch.where(targets.mask, targets.per_list(documents), 0.0).sum(-1)  # [B]
        listed = listed / targets.mask.sum(-1).clamp(min=1)
        return listed if self.of == "documents" else queries + listed

    def _distances(self, side: str, student: Signals, teacher: Signals | None) -> Tensor:
        """The distance of each student embedding to the teacher's: [n]; empty if the side is not matched."""
        ours: Tensor | None = getattr(student, side)
        theirs: Tensor | None = getattr(teacher, side, None)
        if side not in SIDES[self.of]:
            return (student.queries if side == "documents" else student.documents).new_zeros(0)  # type: ignore[union-attr]
        if ours is None or theirs is None:
            who = "student" if ours is None else "teacher"
            raise LimbeckError(f"{self} needs the {who}'s embeddings of {side}; use dual encoders")
        if ours.shape != theirs.shape:
            found, wanted = list(ours.shape), list(theirs.shape)
            problem = f"{self}: the student's embeddings of {side} have shape {found}, the teacher's {wanted}"
            raise LimbeckError(f"{problem}; set student.dim to the teacher's, or leave it out")
        precise = torch.promote_types(ours.dtype, torch.float32)
        return self._distance(ours.to(precise), theirs.detach().to(precise))

    def _distance(self, ours: Tensor, theirs: Tensor) -> Tensor:
        if self.unit or self.distance == "cosine":
            ours, theirs = normalize(ours, dim=-1), normalize(theirs, dim=-1)
        if self.distance == "cosine":
            return 1 - (ours * theirs).sum(-1)
        squared = (ours - theirs).square().sum(-1)
        if self.distance == "squared":
            return squared
        apart = squared > 0  # the root has no gradient at 0: an exact match has gradient 0
        return torch.where(apart, torch.where(apart, squared, 1.0).sqrt(), 0.0)
