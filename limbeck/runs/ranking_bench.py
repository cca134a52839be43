"""Measure models on the test queries of a ranking task."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from limbeck.data import Qrels, RankingData, Run, load
from limbeck.data.by_kind import require_ranking
from limbeck.evaluation import (
    RankingResult,
    candidate_run,
    evaluate_run,
    first_of,
    measure_latency,
    rerank,
    retrieve,
)
from limbeck.evaluation.encoding_cache import Remembering
from limbeck.evaluation.evaluate import size_in_mb
from limbeck.evaluation.measure_names import needs_answers
from limbeck.evaluation.query_cost import query_cost
from limbeck.evaluation.query_distances import query_distances
from limbeck.evaluation.rank import Scorer, can_search
from limbeck.evaluation.speed import TIMED_QUERIES, rerank_speed
from limbeck.matchers import Matcher
from limbeck.matchers.bf16 import in_bf16
from limbeck.matchers.encoding_matcher import encodes_apart
from limbeck.progress import say
from limbeck.runs.bench import Bench
from limbeck.runs.results import Measured, ResultRow, RowKind

if TYPE_CHECKING:
    from limbeck.runs.ranking_task import RankingTask


@dataclass(frozen=True)
class Besides:
    """More queries to re-rank: training queries, or those of another data set."""

    name: str  # prefix of the column names
    data: RankingData
    labels: Qrels
    candidates: dict[str, list[str]]


class RankingBench(Bench):
    """Measures all models on the test queries of a task in the same way."""

    def __init__(self, task: RankingTask) -> None:
        self.task, self.spec = task, task.recipe.evaluation
        task.warn_of_irrelevance()
        splits = task.splits
        self.labels = {query: splits.test_labels[query] for query in splits.test}
        self.candidates = task.candidates(splits.test, task.recipe.data.test or "test", self.spec.depth)
        self.besides = [*self._of_training(), *(self._of_another(source) for source in self.spec.transfer)]

    def _of_training(self) -> list[Besides]:
        task, splits = self.task, self.task.splits
        chosen = [query for query in splits.train if query in splits.train_labels][: self.spec.train_queries]
        if not chosen:
            return []
        candidates = task.candidates(chosen, task.recipe.data.train, self.spec.depth)
        return [Besides("train", task.data, {query: splits.train_labels[query] for query in chosen}, candidates)]

    def _of_another(self, source: str) -> Besides:
        data = require_ranking(load(source), source, remedy="transfer needs queries and documents")
        labels = data.judgements("test")
        run = candidate_run(data, list(labels), "bm25", "test", self.spec.depth)
        return Besides(data.name, data, labels, first_of(run, list(labels), self.spec.depth))

    def model(self, name: str, kind: RowKind, matcher: Matcher, objective: str | None = None) -> Measured:
        say(f"Measuring {name}")
        self.task.reference.serve_documents(matcher)  # before bf16: the stored vectors serve both precisions
        with in_bf16(matcher, self.spec.bf16):
            return self._measured(name, kind, matcher, objective)

    def _measured(self, name: str, kind: RowKind, matcher: Matcher, objective: str | None) -> Measured:
        data = self.task.data
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
        texts = data.queries.take(data.queries.rows(self.labels))
        cost = query_cost(matcher, texts)
        run, result = self._with_besides(run, result, lambda part: rerank(ranker, part.data, part.candidates))
        row = ResultRow(
            name,
            kind,
            _means(result),
            objective,
            ms_per_query=speed.ms_per_query if speed else None,
            pairs_per_second=speed.pairs_per_second if speed else None,
            size_mb=size_in_mb(matcher),
            query_ms=cost.ms if cost else None,
            query_parameters=cost.parameters if cost else None,
        )
        return Measured(row, result, run, query_distances(matcher, texts))

    def bm25(self) -> Measured:
        """BM25 searches the whole corpus: the candidates are its search results, in order."""
        queries = list(self.labels)
        run, result = self._judged(self.task.bm25(queries, self.spec.depth))
        if self.spec.task == "both":
            result = _both(result, result)
        timing = measure_latency(lambda query: self.task.bm25([query], self.spec.depth), queries[:TIMED_QUERIES])
        run, result = self._with_besides(run, result, self._bm25_order)
        return Measured(ResultRow("BM25", "baseline", _means(result), ms_per_query=timing.p50_ms), result, run)

    def _judged(self, run: Run) -> tuple[Run, RankingResult]:
        return run, evaluate_run(run, self.labels, self.spec.measures, self.spec.relevance_level, self.task.data)

    def _with_besides(
        self, run: Run, result: RankingResult, ranker: Callable[[Besides], Run]
    ) -> tuple[Run, RankingResult]:
        """The first measure on the other queries too, under separate names; scores of training queries are kept."""
        judging = [name for name in self.spec.measures if not needs_answers(name)]  # other sets may have no answers
        first, level = (judging or ["ndcg@10"])[0], self.spec.relevance_level
        found, kept = {}, run
        for part in self.besides:
            ranked = ranker(part)
            judged = evaluate_run(ranked, part.labels, [first], level)
            values = judged.per_query[first].tolist()
            found[f"{part.name} {first}"] = dict(zip(judged.query_ids, values, strict=True))
            if part.data is self.task.data:
                kept = {**ranked, **run}
        return kept, replace(result, besides=found)

    def _bm25_order(self, part: Besides) -> Run:
        """Candidates in BM25's order."""
        return {
            query: {document: -float(rank) for rank, document in enumerate(documents)}
            for query, documents in part.candidates.items()
        }


def _means(result: RankingResult) -> dict[str, float]:
    """The means of all measures, those on other queries last."""
    return result.means | {name: float(np.mean([*values.values()])) for name, values in result.besides.items()}


def _both(reranked: RankingResult, retrieved: RankingResult) -> RankingResult:
    """Re-ranking measures under their own names, retrieval measures as `search ...`."""
    searched = {f"search {name}": values for name, values in retrieved.per_query.items()}
    return replace(reranked, per_query=reranked.per_query | searched)
