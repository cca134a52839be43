"""The rows of a run's table: quality, speed and size of teacher, baselines and students."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from limbeck.data import Run
from limbeck.evaluation import holm
from limbeck.evaluation.chance import kept
from limbeck.evaluation.system_result import SystemResult

RowKind = Literal["teacher", "baseline", "student"]


@dataclass(frozen=True)
class ResultRow:
    """One line of the table. `ms_per_query` is the time to re-rank one query's candidates, one query at a time.

    Everything that can be precomputed is: a dual encoder's time is encoding the query plus the inner products.
    """

    name: str
    kind: RowKind
    measures: dict[str, float]
    objective: str | None = None
    spread: dict[str, float] | None = None  # standard deviation of each measure over seeds
    runs: int = 1  # number of seeds in the means
    failed: list[str] | None = None  # errors of the other seeds
    chosen: str | None = None  # the setting chosen on dev, if there was a choice
    logged: str | None = None  # prefix of the students of a sweep's row in the log
    kept: float | None = None  # share of the teacher's quality above chance, by the first measure
    ms_per_query: float | None = None
    pairs_per_second: float | None = None
    size_mb: float | None = None
    bytes_per_document: float | None = None  # of what is kept of a document, as float32
    query_ms: float | None = None  # to encode one query by itself, without documents
    query_parameters: int | None = None  # of the modules that encode queries
    speedup: float | None = None  # against the teacher
    significance: dict[str, Any] | None = None


@dataclass(frozen=True)
class Measured:
    """A row, and its values per query."""

    row: ResultRow
    result: SystemResult
    run: Run  # of the test queries, and of training queries if some were measured
    distances: list[float] | None = None  # between its embeddings of test queries: see `query_distances`
    model: Path | None = None  # a student's folder, if its weights were kept
    teacher: str | None = None  # the row to compare it with; the first teacher's by default


def over_seeds(measured: list[Measured], name: str, failed: list[str], chosen: str | None = None) -> Measured:
    """One row for the runs of one recipe with several seeds: means, with their spread.

    The times are the best ones: students of one recipe are equally fast, and other load only makes them slower.
    """
    rows = [one.row for one in measured]
    values = {key: np.array([row.measures[key] for row in rows]) for key in rows[0].measures}
    spread = {key: float(found.std(ddof=1)) for key, found in values.items()} if len(rows) > 1 else None
    row = replace(
        rows[0],
        name=name,
        measures={key: float(found.mean()) for key, found in values.items()},
        spread=spread,
        runs=len(rows),
        failed=failed or None,
        chosen=chosen,
        ms_per_query=min((row.ms_per_query for row in rows if row.ms_per_query is not None), default=None),
        query_ms=min((row.query_ms for row in rows if row.query_ms is not None), default=None),
        pairs_per_second=max((row.pairs_per_second for row in rows if row.pairs_per_second is not None), default=None),
    )
    result = type(measured[0].result).over_seeds([one.result for one in measured])
    return Measured(row, result, measured[0].run, measured[0].distances, measured[0].model)


def finish(rows: list[Measured], against: str | None = None) -> list[Measured]:
    """Compare every row with the teacher's, and every student with the row `against` (by default the teacher's).

    If there is no row of that name, nothing is tested. If several students are tested, `p_holm` is the p-value
    corrected for their number.
    """
    teachers = {measured.row.name: measured for measured in rows if measured.row.kind == "teacher"}
    first_teacher = next(iter(teachers.values()), None)
    named = next((measured for measured in rows if measured.row.name == against), None)
    reference = first_teacher if against is None else named
    finished = []
    for measured in rows:
        row = measured.row
        first = next(iter(row.measures))
        teacher = teachers.get(measured.teacher or "", first_teacher)
        if teacher is not None:
            row = replace(row, kept=_kept(measured, teacher, first), speedup=_speedup(row, teacher.row))
        enough = len(measured.result) > 1
        if row.kind == "student" and reference is not None and reference is not measured and enough:
            found = measured.result.compare(reference.result, first)
            significance = {
                "against": reference.row.name,
                "p": list(found.p_values.values())[-1],
                "difference": found.difference,
                "low": found.low,
                "high": found.high,
            }
            row = replace(row, significance=significance)
        finished.append(replace(measured, row=row))
    tested = [one.row.significance for one in finished if one.row.significance is not None]
    for significance, corrected in zip(tested, holm([test["p"] for test in tested]), strict=True):
        significance["p_holm"] = float(corrected)
    return finished


def _kept(ours: Measured, teacher: Measured, measure: str) -> float | None:
    lowest = teacher.result.chance(measure)
    return None if lowest is None else kept(ours.row.measures[measure], teacher.row.measures[measure], lowest)


def _speedup(row: ResultRow, teacher: ResultRow) -> float | None:
    """The speed-up by the time of a query if it is known, otherwise by pairs per second."""
    if row.ms_per_query and teacher.ms_per_query:
        return teacher.ms_per_query / row.ms_per_query
    if row.ms_per_query is None and row.pairs_per_second and teacher.pairs_per_second:
        return row.pairs_per_second / teacher.pairs_per_second
    return None


def rows_as_json(rows: list[ResultRow]) -> list[dict[str, Any]]:
    return [asdict(row) for row in rows]
