"""One model measured on one data set, alone or against another: what `limbeck evaluate` does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from limbeck.data import Candidates, PairData, RankingData, load, read_run, write_run
from limbeck.errors import LimbeckError, did_you_mean
from limbeck.evaluation.candidates import candidate_run, first_of, with_judged
from limbeck.evaluation.measures import canonical_name, evaluate_run
from limbeck.evaluation.pairs import evaluate_pairs
from limbeck.evaluation.rank import can_search, encodes_tokens, rerank, retrieve, retrieve_by_tokens
from limbeck.evaluation.significance import Comparison, compare_pairs, compare_rankings
from limbeck.evaluation.speed import rerank_speed
from limbeck.matchers import Matcher
from limbeck.matchers import load as load_matcher
from limbeck.search.sparse import bm25_candidates
from limbeck.stores import EncodingStore, store_path
from limbeck.stores.encodings import Tokens

TASKS = ["rerank", "retrieve", "pairs"]
TOKENS = "tokens"  # as candidates: what an approximate index over token vectors finds


@dataclass(frozen=True)
class Request:
    """What is to be measured; the fields are the command's options."""

    model: str
    data: str
    task: str | None = None
    split: str = "test"
    against: str | None = None
    candidates: str = "bm25"
    depth: int = 100
    add_judged: bool = False
    measures: Sequence[str] | None = None
    relevance_level: int = 1
    limit: int | None = None
    store: Path | None = None
    run: Path | None = None
    also: Sequence[str] = ()  # measures besides the default ones or the chosen


@dataclass(frozen=True)
class Evaluation:
    """The result: measures, cost, and the comparison if there was one."""

    task: str
    split: str
    count: int  # queries or pairs
    measures: dict[str, float]
    ms_per_query: float | None = None
    pairs_per_second: float | None = None
    size_mb: float | None = None
    comparisons: tuple[Comparison, ...] = ()

    def as_json(self) -> dict[str, Any]:
        comparisons = [
            {
                "measure": found.measure,
                "difference": found.difference,
                "low": found.low,
                "high": found.high,
                "p": found.p_values,
                "record": found.record,
            }
            for found in self.comparisons
        ]
        own = {name: value for name, value in vars(self).items() if name != "comparisons"}
        return {**own, "comparisons": comparisons}

    def __str__(self) -> str:
        noun = "pairs" if self.task == "pairs" else "queries"
        width = max(map(len, self.measures))
        lines = [f"{self.task} on {self.split}, {self.count:,} {noun}"]
        lines += [f"  {name:<{width}}  {value:.4f}" for name, value in self.measures.items()]
        costs = [
            f"{self.ms_per_query:,.1f} ms per query" if self.ms_per_query is not None else "",
            f"{self.pairs_per_second:,.0f} pairs per second" if self.pairs_per_second is not None else "",
            f"{self.size_mb:,.0f} MB" if self.size_mb is not None else "",
        ]
        lines += ["  " + ", ".join(filter(None, costs))] if any(costs) else []
        return "\n".join([*lines, *(f"  {found}" for found in self.comparisons)])


def run_evaluation(request: Request) -> Evaluation:
    """Measure what `request` asks for."""
    if request.task is not None and request.task not in TASKS:
        raise LimbeckError(f"unknown task {request.task!r}; {did_you_mean(request.task, TASKS)}")
    data = load(request.data)
    if isinstance(data, PairData):
        if request.task not in (None, "pairs"):
            raise LimbeckError(f"{request.data}: holds pairs, which have no ranking; use --task pairs")
        return _evaluate_pairs(request, data)
    if request.task == "pairs":
        raise LimbeckError(f"{request.data}: holds rankings, not pairs; use --task rerank or retrieve")
    return _evaluate_ranking(request, data)


def size_in_mb(matcher: Matcher) -> float:
    """The size of the weights in memory."""
    return sum(parameter.numel() * parameter.element_size() for parameter in matcher.parameters()) / 1e6


def _evaluate_pairs(request: Request, data: PairData) -> Evaluation:
    pairs = [pair for pair in data.split(request.split) if pair.label is not None][: request.limit]
    if any(len(pair.texts) != 2 for pair in pairs):
        raise LimbeckError(f"{request.data}: holds tuples of more than two texts, which this model cannot score")
    labels = np.array([pair.label for pair in pairs], dtype=np.float64)
    texts = [(pair.texts[0], pair.texts[1]) for pair in pairs]
    matcher = load_matcher(request.model)
    scores = matcher.score(texts)
    measures = evaluate_pairs(scores, labels, request.measures)
    measures |= evaluate_pairs(scores, labels, [name for name in request.also if name not in measures])
    comparisons: tuple[Comparison, ...] = ()
    if request.against is not None:
        baseline = load_matcher(request.against).score(texts)
        comparisons = tuple(compare_pairs(scores, baseline, labels, name) for name in measures)
    return Evaluation(
        "pairs", request.split, len(pairs), measures, size_mb=size_in_mb(matcher), comparisons=comparisons
    )


def _evaluate_ranking(request: Request, data: RankingData) -> Evaluation:
    qrels = data.judgements(request.split)
    query_ids = sorted(qrels)[: request.limit]
    qrels = {query: qrels[query] for query in query_ids}
    measures = [*(request.measures or ["ndcg@10", "mrr@10", f"recall@{min(request.depth, 100)}"]), *request.also]
    measures = [canonical_name(name) for name in measures]  # a mistake is told before the work is done
    ranker = _Ranker(request, data, query_ids)
    run, task = ranker.rank(request.model)
    result = evaluate_run(run, qrels, measures, request.relevance_level)
    comparisons: tuple[Comparison, ...] = ()
    if request.against is not None:
        other, _ = ranker.rank(request.against)
        baseline = evaluate_run(other, qrels, measures, request.relevance_level)
        comparisons = tuple(compare_rankings(result, baseline, name) for name in result.means)
    if request.run is not None:
        write_run(run, request.run)
    matcher = ranker.matchers.get(request.model)
    speed = rerank_speed(matcher, data, ranker.lists()) if matcher is not None and task == "rerank" else None
    return Evaluation(
        task,
        request.split,
        len(query_ids),
        result.means,
        speed.ms_per_query if speed else None,
        speed.pairs_per_second if speed else None,
        size_in_mb(matcher) if matcher is not None else None,
        comparisons,
    )


def is_a_run(name: str) -> bool:
    """Whether a name stands for a ranking rather than for a model."""
    return name == "bm25" or Path(name).is_file()


class _Ranker:
    """Runs of several models over the same queries and candidates."""

    def __init__(self, request: Request, data: RankingData, query_ids: list[str]) -> None:
        self.request, self.data, self.query_ids = request, data, query_ids
        self.matchers: dict[str, Matcher] = {}
        self._lists: dict[str, list[str]] | None = None

    def rank(self, name: str) -> tuple[Candidates, str]:
        """The run of a model, of BM25, or of a run file, and how it came about."""
        if name == "bm25":
            return bm25_candidates(self.data, self.query_ids, self.request.depth), "retrieve"
        if is_a_run(name):
            return read_run(name), "run file"
        matcher = self.matcher(name)
        if self.task == "rerank":
            return rerank(matcher, self.data, self.lists()), "rerank"
        search = retrieve_by_tokens if self.request.candidates == TOKENS else retrieve
        return search(matcher, self.data, self.query_ids, self.request.depth, self._store(matcher)), "retrieve"

    def matcher(self, name: str) -> Matcher:
        if name not in self.matchers:
            self.matchers[name] = load_matcher(name)
        return self.matchers[name]

    @cached_property
    def task(self) -> str:
        """One task for all: retrieval where every model can, else re-ranking of the same candidates."""
        if self.request.task is not None:
            return self.request.task
        named = [name for name in (self.request.model, self.request.against) if name and not is_a_run(name)]
        return "retrieve" if all(can_search(self.matcher(name)) for name in named) else "rerank"

    def lists(self) -> dict[str, list[str]]:
        """What is re-ranked for each query."""
        if self._lists is None:
            request = self.request
            source = candidate_run(self.data, self.query_ids, request.candidates, request.split, request.depth)
            found = first_of(source, self.query_ids, request.depth)
            judged = self.data.judgements(request.split)
            self._lists = with_judged(found, judged) if request.add_judged else found
        return self._lists

    def _store(self, matcher: Matcher) -> EncodingStore | None:
        if self.request.store is None:
            return None
        key = {**matcher.identity(), "side": "document"}
        tokens: Tokens = "ragged" if encodes_tokens(matcher) else None
        dim: int = matcher.dim  # type: ignore[assignment]
        return EncodingStore.open(store_path(self.request.store, key), key, dim, tokens=tokens)
