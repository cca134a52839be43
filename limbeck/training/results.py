"""The rows of a run's table: quality beside speed and size, for teacher, baselines and students."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from limbeck.data import Run
from limbeck.evaluation import RankingResult, compare_rankings, evaluate_run, measure_latency, rerank, retrieve
from limbeck.evaluation.command import size_in_mb
from limbeck.evaluation.rank import encodes_ahead
from limbeck.evaluation.speed import TIMED_QUERIES, rerank_speed
from limbeck.matchers import Matcher
from limbeck.progress import say
from limbeck.training.session import Session

Kind = Literal["teacher", "baseline", "student"]


@dataclass(frozen=True)
class Row:
    """One line of the table. `ms_per_query` is the time to re-rank one query's candidates, one query at a time.

    Whatever can be encoded ahead is: a dual encoder's time is that of encoding the query and of the inner products.
    """

    name: str
    kind: Kind
    measures: dict[str, float]
    objective: str | None = None
    kept: float | None = None  # share of the teacher's quality, by the first measure
    ms_per_query: float | None = None
    pairs_per_second: float | None = None
    size_mb: float | None = None
    speedup: float | None = None  # against the teacher
    significance: dict[str, Any] | None = None


@dataclass(frozen=True)
class Measured:
    """A row, and the per-query values it came from."""

    row: Row
    result: RankingResult
    run: Run


class Bench:
    """Measures models on the test queries of a session, all in the same way."""

    def __init__(self, session: Session) -> None:
        self.session, self.spec = session, session.recipe.evaluation
        splits = session.splits
        self.labels = {query: splits.test_labels[query] for query in splits.test}
        self.candidates = session.candidates(splits.test, session.recipe.data.test or "test", self.spec.depth)

    def model(self, name: str, kind: Kind, matcher: Matcher, objective: str | None = None) -> Measured:
        say(f"Measuring {name}")
        data = self.session.data
        if self.spec.task == "retrieve" and encodes_ahead(matcher):
            run = retrieve(matcher, data, list(self.labels), k=self.spec.depth)
        else:
            run = rerank(matcher, data, self.candidates)
            name = f"{name}, re-ranking {self.spec.candidates}" if self.spec.task == "retrieve" else name
        result = evaluate_run(run, self.labels, self.spec.measures, self.spec.relevance_level)
        speed = rerank_speed(matcher, data, self.candidates)
        row = Row(
            name,
            kind,
            result.means,
            objective,
            ms_per_query=speed.ms_per_query if speed else None,
            pairs_per_second=speed.pairs_per_second if speed else None,
            size_mb=size_in_mb(matcher),
        )
        return Measured(row, result, run)

    def bm25(self) -> Measured:
        queries = list(self.labels)
        run = self.session.bm25(queries, self.spec.depth)
        result = evaluate_run(run, self.labels, self.spec.measures, self.spec.relevance_level)
        timing = measure_latency(lambda query: self.session.bm25([query], self.spec.depth), queries[:TIMED_QUERIES])
        return Measured(Row("BM25", "baseline", result.means, ms_per_query=timing.p50_ms), result, run)


def finish(rows: list[Measured], against: str | None = None) -> list[Row]:
    """Relate every row to the teacher's, and every student to the row called `against` (the teacher by default)."""
    teacher = next((measured for measured in rows if measured.row.kind == "teacher"), None)
    reference = next((measured for measured in rows if measured.row.name == against), teacher)
    finished = []
    for measured in rows:
        row = measured.row
        first = next(iter(row.measures))
        if teacher is not None:
            quality, time = teacher.row.measures[first], teacher.row.ms_per_query
            row = replace(
                row,
                kept=row.measures[first] / quality if quality else None,
                speedup=time / row.ms_per_query if time and row.ms_per_query else None,
            )
        enough = len(measured.result.query_ids) > 1
        if row.kind == "student" and reference is not None and reference is not measured and enough:
            found = compare_rankings(measured.result, reference.result, first)
            significance = {
                "against": reference.row.name,
                "p": found.p_values["randomisation"],
                "difference": found.difference,
                "low": found.low,
                "high": found.high,
            }
            row = replace(row, significance=significance)
        finished.append(row)
    return finished


def rows_as_json(rows: list[Row]) -> list[dict[str, Any]]:
    return [asdict(row) for row in rows]
