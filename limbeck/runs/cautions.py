"""What a table does not say by itself: students that are worse than what one has without them."""

from __future__ import annotations

from collections.abc import Sequence

from limbeck.report.formatting import listed, measure_title
from limbeck.runs.results import Measured, ResultRow

NAMED = 3  # students that a line names


def cautions(measured: Sequence[Measured]) -> list[str]:
    """A line for each baseline that some student ends below, by the first measure, and for students that are slow."""
    lines = []
    for baseline in measured:
        if baseline.row.kind == "baseline" and baseline.row.measures:
            students = [one.row for one in measured if one.row.kind == "student" and one.teacher == baseline.teacher]
            lines += _below(baseline.row, students)
    slower = [one.row for one in measured if one.row.kind == "student" and (one.row.speedup or 1) < 1]
    return lines + [f"{row.name} is slower than its teacher ({row.speedup:.2g} times its speed)." for row in slower]


def _below(baseline: ResultRow, students: Sequence[ResultRow]) -> list[str]:
    measure = next(iter(baseline.measures))
    worse = [row for row in students if row.measures.get(measure, 1.0) < baseline.measures[measure]]
    if not worse:
        return []
    names = [f"{row.name} ({row.measures[measure]:.3f})" for row in worse]
    if len(names) > NAMED:
        names = [*names[:NAMED], f"{len(names) - NAMED} more"]
    verb = "ends" if len(worse) == 1 else "end"
    told = (
        f"{listed(names)} {verb} below {baseline.name} ({baseline.measures[measure]:.3f}) in {measure_title(measure)}"
    )
    return [f"{told}: check the loss, then try more steps, another lr or tau, or a better teacher."]
