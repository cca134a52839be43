"""Held-out queries, and how good a ranking of them is: by labels, and by agreement with the teacher's own list."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from limbeck.data import Qrels, Run, ranked
from limbeck.errors import LimbeckError
from limbeck.evaluation import RankingResult, evaluate_run

TOP = 10
LABELLED, AGREEMENT, OVERLAP = f"ndcg@{TOP}", f"agreement ndcg@{TOP}", f"overlap@{TOP}"


def teacher_grades(run: Mapping[str, Mapping[str, float]]) -> Qrels:
    """A teacher's own list as judgements: its first document has grade 10, the tenth has grade 1."""
    return {
        query: {document: TOP - rank for rank, document in enumerate(ranked(scores)[:TOP])}
        for query, scores in run.items()
        if scores
    }


@dataclass
class Exam:
    """Queries that nothing was trained on, their labels (maybe none), and the teacher's ranking of them."""

    queries: list[str]
    labels: Qrels
    teacher: Run = field(default_factory=dict)
    candidates: dict[str, list[str]] | None = None  # to re-rank; None to search the whole corpus

    @property
    def measure(self) -> str:
        """The measure that decides: nDCG@10 with labels, otherwise nDCG@10 with the teacher's list as labels."""
        return LABELLED if self.labels else AGREEMENT

    @property
    def of_teacher(self) -> float:
        """The teacher's value of the deciding measure."""
        return self.judge(self.teacher).means[self.measure]

    def judge(self, run: Run) -> RankingResult:
        """Values per query of all measures, the deciding one first."""
        found: RankingResult | None = None
        if self.labels:
            found = evaluate_run(run, {query: self.labels[query] for query in self.queries}, [LABELLED])
        graded = teacher_grades({query: self.teacher[query] for query in self.queries if query in self.teacher})
        if not graded or (found is not None and len(graded) < len(found)):
            if found is None:
                raise LimbeckError("there are neither labels nor teacher scores of held-out queries; give one of them")
            return found
        agreed = evaluate_run(run, graded, [f"ndcg@{TOP}", f"recall@{TOP}"])
        values = {AGREEMENT: agreed.per_query[f"ndcg@{TOP}"], OVERLAP: agreed.per_query[f"recall@{TOP}"]}
        before = {} if found is None else found.per_query
        return RankingResult(agreed.query_ids, before | values, agreed.unranked, agreed.without_relevant)
