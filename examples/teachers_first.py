"""A custom analysis: where the student puts the document that the teacher ranks first.

limbeck --plugin examples/teachers_first.py distill examples/teachers_first.yaml --out runs/first
limbeck --plugin examples/teachers_first.py report ANOTHER_RUN --add teachers_first
"""

from __future__ import annotations

from collections import Counter

from limbeck.errors import LimbeckError
from limbeck.report.analyses.measured_run import MeasuredRun
from limbeck.report.analyses.registry import Analysis, analysis
from limbeck.report.blocks import Column, PlotFigure, Section, Table, TableRow, Text
from limbeck.report.colours import Colours
from limbeck.report.plots import Bars

SHOWN = 10  # ranks in the picture; lower ranks share the last bar


@analysis
class TeachersFirst(Analysis):
    """The student's ranks of the teacher's first documents. The fields are saved with the run as JSON."""

    name = "teachers_first"
    title = "The teacher's first document"
    about = "where the student puts the document that the teacher ranks first"

    student: str
    queries: int
    ranks: dict[int, int]  # rank -> queries

    @classmethod
    def of(cls, run: MeasuredRun) -> TeachersFirst:
        teacher, student = run.scores(run.teacher), run.scores(run.best_student)
        found = []
        for query, scores in teacher.items():
            first = max(scores, key=lambda document: scores[document])
            own = student.get(query, {})
            if first in own:
                found.append(1 + sum(score > own[first] for score in own.values()))
        if not found:
            raise LimbeckError("teacher and student have no document in common; use evaluation.task rerank")
        return cls(student=run.best_student.name, queries=len(found), ranks=dict(sorted(Counter(found).items())))

    def section(self, colours: Colours) -> Section:
        first = self.ranks.get(1, 0) / self.queries
        text = f"{self.student} puts the teacher's first document first for {first:.0%} of {self.queries:,} queries."
        rows = [TableRow([rank, count, count / self.queries]) for rank, count in self.ranks.items()]
        table = Table([Column("Rank"), Column("Queries", ","), Column("Share", ".0%")], rows, "All ranks.")
        return Section(self.title, [Text(text, lead=True), self._bars(), table])

    def _bars(self) -> PlotFigure:
        below = sum(count for rank, count in self.ranks.items() if rank > SHOWN)
        heights = [float(self.ranks.get(rank, 0)) for rank in range(1, SHOWN + 1)] + [float(below)]
        hints = [
            f"rank {rank}: {height:.0f}" for rank, height in zip([*range(1, SHOWN + 1), "below"], heights, strict=True)
        ]
        return PlotFigure(Bars(heights, hints, f"rank 1 to {SHOWN}, and below", "queries"), "By rank.", height=240)
