"""The rows of a run's table: quality beside speed and size, for teacher, baselines and students."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import numpy as np

from limbeck.data import Qrels, RankingData, Run, load
from limbeck.errors import LimbeckError
from limbeck.evaluation import (
    RankingResult,
    candidate_run,
    compare_rankings,
    evaluate_run,
    first_of,
    holm,
    measure_latency,
    rerank,
    retrieve,
)
from limbeck.evaluation.chance import chance, kept
from limbeck.evaluation.encoding_cache import Remembering
from limbeck.evaluation.evaluate import size_in_mb
from limbeck.evaluation.pair_result import PairResult
from limbeck.evaluation.rank import Scorer, can_search
from limbeck.evaluation.significance import Comparison
from limbeck.evaluation.speed import TIMED_QUERIES, rerank_speed
from limbeck.matchers import Matcher
from limbeck.matchers.bf16 import in_bf16
from limbeck.matchers.encoding_matcher import encodes_apart
from limbeck.progress import say
from limbeck.runs.session import Session

RowKind = Literal["teacher", "baseline", "student"]


@dataclass(frozen=True)
class ResultRow:
    """One line of the table. `ms_per_query` is the time to re-rank one query's candidates, one query at a time.

    Whatever can be encoded ahead is: a dual encoder's time is that of encoding the query and of the inner products.
    """

    name: str
    kind: RowKind
    measures: dict[str, float]
    objective: str | None = None
    spread: dict[str, float] | None = None  # standard deviation of each measure over seeds
    runs: int = 1  # seeds that the measures are the means of
    failed: list[str] | None = None  # what went wrong with the others
    chosen: str | None = None  # the setting that was chosen on dev, where there was a choice
    logged: str | None = None  # what the log calls the students of a sweep's row, before the seed
    kept: float | None = None  # share of the teacher's quality above chance, by the first measure
    ms_per_query: float | None = None
    pairs_per_second: float | None = None
    size_mb: float | None = None
    speedup: float | None = None  # against the teacher
    significance: dict[str, Any] | None = None


@dataclass(frozen=True)
class Measured:
    """A row, and the per-query values it came from."""

    row: ResultRow
    result: RankingResult | PairResult
    run: Run  # of the test queries, and of training queries where some were measured
    teacher: str | None = None  # the row that it is held against; the first teacher's by default


@dataclass(frozen=True)
class Besides:
    """Further queries that are re-ranked: training queries, or those of another data set."""

    name: str  # of the columns
    data: RankingData
    labels: Qrels
    candidates: dict[str, list[str]]


class Bench:
    """Measures models on the test queries of a session, all in the same way."""

    def __init__(self, session: Session) -> None:
        self.session, self.spec = session, session.recipe.evaluation
        session.warn_of_irrelevance()
        splits = session.splits
        self.labels = {query: splits.test_labels[query] for query in splits.test}
        self.candidates = session.candidates(splits.test, session.recipe.data.test or "test", self.spec.depth)
        self.besides = [*self._of_training(), *(self._of_another(source) for source in self.spec.transfer)]

    def _of_training(self) -> list[Besides]:
        session, splits = self.session, self.session.splits
        chosen = [query for query in splits.train if query in splits.train_labels][: self.spec.train_queries]
        if not chosen:
            return []
        candidates = session.candidates(chosen, session.recipe.data.train, self.spec.depth)
        return [Besides("train", session.data, {query: splits.train_labels[query] for query in chosen}, candidates)]

    def _of_another(self, source: str) -> Besides:
        data = load(source)
        if not isinstance(data, RankingData):
            raise LimbeckError(f"{source}: holds pairs, not rankings; transfer needs queries and documents")
        labels = data.judgements("test")
        run = candidate_run(data, list(labels), "bm25", "test", self.spec.depth)
        return Besides(data.name, data, labels, first_of(run, list(labels), self.spec.depth))

    def model(self, name: str, kind: RowKind, matcher: Matcher, objective: str | None = None) -> Measured:
        say(f"Measuring {name}")
        with in_bf16(matcher, self.spec.bf16):
            return self._measured(name, kind, matcher, objective)

    def _measured(self, name: str, kind: RowKind, matcher: Matcher, objective: str | None) -> Measured:
        data = self.session.data
        self.session.reference.serve_documents(matcher)
        ranker: Scorer = Remembering(matcher) if encodes_apart(matcher) else matcher
        searches = self.spec.task != "rerank" and can_search(matcher)
        found = self._judged(retrieve(ranker, data, list(self.labels), k=self.spec.depth)) if searches else None
        if self.spec.task == "retrieve" and found is not None:
            run, result = found
        else:
            run, result = self._judged(rerank(ranker, data, self.candidates))
            name = f"{name}, re-ranking {self.spec.candidates}" if self.spec.task == "retrieve" else name
        if self.spec.task == "both" and found is not None:
            result = _both(result, found[1])
        speed = rerank_speed(matcher, data, self.candidates)
        run, result = self._with_besides(run, result, lambda part: rerank(ranker, part.data, part.candidates))
        row = ResultRow(
            name,
            kind,
            _means(result),
            objective,
            ms_per_query=speed.ms_per_query if speed else None,
            pairs_per_second=speed.pairs_per_second if speed else None,
            size_mb=size_in_mb(matcher),
        )
        return Measured(row, result, run)

    def bm25(self) -> Measured:
        """BM25 searches the whole corpus: it found the candidates, so its order of them is the search's too."""
        queries = list(self.labels)
        run, result = self._judged(self.session.bm25(queries, self.spec.depth))
        if self.spec.task == "both":
            result = _both(result, result)
        timing = measure_latency(lambda query: self.session.bm25([query], self.spec.depth), queries[:TIMED_QUERIES])
        run, result = self._with_besides(run, result, self._bm25_order)
        return Measured(ResultRow("BM25", "baseline", _means(result), ms_per_query=timing.p50_ms), result, run)

    def _judged(self, run: Run) -> tuple[Run, RankingResult]:
        return run, evaluate_run(run, self.labels, self.spec.measures, self.spec.relevance_level)

    def _with_besides(
        self, run: Run, result: RankingResult, ranker: Callable[[Besides], Run]
    ) -> tuple[Run, RankingResult]:
        """The first measure on the further queries too, under names of their own; scores of training queries stay."""
        first, level = self.spec.measures[0], self.spec.relevance_level
        found, kept = {}, run
        for part in self.besides:
            ranked = ranker(part)
            judged = evaluate_run(ranked, part.labels, [first], level)
            values = judged.per_query[first].tolist()
            found[f"{part.name} {first}"] = dict(zip(judged.query_ids, values, strict=True))
            if part.data is self.session.data:
                kept = {**ranked, **run}
        return kept, replace(result, besides=found)

    def _bm25_order(self, part: Besides) -> Run:
        """Candidates in the order in which BM25 found them."""
        return {
            query: {document: -float(rank) for rank, document in enumerate(documents)}
            for query, documents in part.candidates.items()
        }


def _means(result: RankingResult) -> dict[str, float]:
    """The means of all measures, those on further queries last."""
    return result.means | {name: float(np.mean([*values.values()])) for name, values in result.besides.items()}


def _both(reranked: RankingResult, retrieved: RankingResult) -> RankingResult:
    """Re-ranking's values under their own names, retrieval's under `search ...`."""
    searched = {f"search {name}": values for name, values in retrieved.per_query.items()}
    return replace(reranked, per_query=reranked.per_query | searched)


def over_seeds(measured: list[Measured], name: str, failed: list[str], chosen: str | None = None) -> Measured:
    """One row for the runs of one recipe under several seeds: means, with their spread.

    The times are the best ones: students of one recipe are equally fast, and what else a machine does only slows them.
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
        pairs_per_second=max((row.pairs_per_second for row in rows if row.pairs_per_second is not None), default=None),
    )
    return Measured(row, _over_seeds([one.result for one in measured]), measured[0].run)


def _over_seeds(results: Sequence[RankingResult | PairResult]) -> RankingResult | PairResult:
    """One result: per-query values averaged, or the scores of all seeds side by side."""
    first = results[0]
    if isinstance(first, PairResult):
        return replace(first, scores=tuple(one.scores[0] for one in results if isinstance(one, PairResult)))
    rankings = [one for one in results if isinstance(one, RankingResult)]
    means = {key: np.mean([one.per_query[key] for one in rankings], axis=0) for key in first.per_query}
    besides = {
        key: {query: float(np.mean([one.besides[key][query] for one in rankings])) for query in values}
        for key, values in first.besides.items()
        if all(key in one.besides for one in rankings)  # a seed that an earlier version measured has none
    }
    return replace(first, per_query=means, besides=besides)


def finish(rows: list[Measured], against: str | None = None) -> list[Measured]:
    """Relate every row to the teacher's, and every student to the row called `against` (the teacher by default).

    Where there is no row of that name nothing is tested. Where several students are tested, `p_holm` is the p-value
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
            found = _compared(measured.result, reference.result, first)
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
    lowest = chance(teacher.result, measure)
    return None if lowest is None else kept(ours.row.measures[measure], teacher.row.measures[measure], lowest)


def _compared(ours: RankingResult | PairResult, theirs: RankingResult | PairResult, measure: str) -> Comparison:
    if isinstance(ours, PairResult):
        assert isinstance(theirs, PairResult)
        return ours.compare(theirs, measure)
    assert isinstance(theirs, RankingResult)
    return compare_rankings(ours, theirs, measure)


def _speedup(row: ResultRow, teacher: ResultRow) -> float | None:
    """By the time of a query where there is one, else by pairs a second."""
    if row.ms_per_query and teacher.ms_per_query:
        return teacher.ms_per_query / row.ms_per_query
    if row.ms_per_query is None and row.pairs_per_second and teacher.pairs_per_second:
        return row.pairs_per_second / teacher.pairs_per_second
    return None


def rows_as_json(rows: list[ResultRow]) -> list[dict[str, Any]]:
    return [asdict(row) for row in rows]
