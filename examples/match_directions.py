"""A custom objective: the student's embeddings, through a projection, point where the teacher's point.

    limbeck --plugin examples/match_directions.py distill examples/match_directions.yaml --out runs/match

The teacher runs once over each text, and its embeddings are kept with the run. The projection is trained with the
student and at the end becomes its last layer, so that the student's vectors lie in the teacher's space.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import cosine_similarity

from limbeck.objectives.base import Objective, check_number, objective
from limbeck.signals import Signals, Sizes, Targets

EMBEDDINGS = frozenset({"queries", "documents"})


@objective
class match_directions(Objective):
    """1 - cosine to the teacher's embeddings, of a query and of the documents in its list.

        1 - cos(W q, q') + documents / K * sum_k (1 - cos(W d_k, d'_k))

    q and d_k are the student's embeddings, q' and d'_k the teacher's, W is the projection.

    In a recipe: `match_directions(documents=0.5)`.
    """

    documents: float = 1.0  # weight of the documents relative to the query

    needs_student = EMBEDDINGS
    needs_teacher = EMBEDDINGS
    folds = ("projection",)

    def __post_init__(self) -> None:
        check_number(self, "documents", low=0)

    def heads(self, sizes: Sizes) -> dict[str, nn.Module]:
        assert sizes.teacher is not None  # an objective that needs the teacher's embeddings has a teacher
        return {"projection": nn.Linear(sizes.student, sizes.teacher, bias=False)}

    def __call__(
        self, student: Signals, teacher: Signals | None, targets: Targets, heads: nn.ModuleDict | None = None
    ) -> Tensor:
        assert teacher is not None and heads is not None
        project = heads["projection"]
        queries = _apart(project(student.queries), teacher.queries)  # [B]
        each = _apart(project(student.documents), teacher.documents)  # [P], each document once
        listed = torch.where(targets.mask, targets.per_list(each), 0.0).sum(-1)  # [B]
        return queries + self.documents * listed / targets.mask.sum(-1).clamp(min=1)


def _apart(left: Tensor, right: Tensor) -> Tensor:
    return 1 - cosine_similarity(left, right, dim=-1)
