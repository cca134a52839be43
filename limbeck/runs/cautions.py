"""Warnings below a table: students that are worse than a baseline, or slower than their teacher."""

from __future__ import annotations

from collections.abc import Sequence

from limbeck.report.formatting import listed, measure_title
from limbeck.runs.results import Measured, ResultRow

NAMED = 3  # maximum number of students named in a line


def cautions(measured: Sequence[Measured]) -> list[str]:
    """A line for each baseline that beats some student in the first measure, and for slow students."""
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
