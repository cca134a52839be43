"""Measure one model on one data set, alone or against another: the work of `limbeck evaluate`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from limbeck.data import Candidates, PairData, Qrels, RankingData, load, read_run, write_run
from limbeck.data.by_kind import by_kind
from limbeck.errors import LimbeckError, did_you_mean
from limbeck.evaluation.answers import require_answers
from limbeck.evaluation.candidates import candidate_run, first_of, with_judged
from limbeck.evaluation.encoding_cache import Remembering
from limbeck.evaluation.latency import folder_bytes, measure_latency
from limbeck.evaluation.measure_names import canonical_name, needs_answers
from limbeck.evaluation.measures import evaluate_run
from limbeck.evaluation.pair_command import PairEvaluation
from limbeck.evaluation.rank import (
    Scorer,
    can_search,
    rerank,
    retrieve,
    search_tokens,
    token_index,
)
from limbeck.evaluation.request import PAIRS, TASKS, TOKENS, Evaluation, Request
from limbeck.evaluation.sample import sample
from limbeck.evaluation.search_speed import search_timings
from limbeck.evaluation.significance import Comparison, compare_rankings
from limbeck.evaluation.speed import TIMED_QUERIES, rerank_speed, retrieval_ms
from limbeck.matchers import Matcher
from limbeck.matchers import load as load_matcher
from limbeck.matchers.encoding_matcher import encodes_apart
from limbeck.matchers.lengths import shorten
from limbeck.search.index import SearchIndex
from limbeck.search.late import TokenIndex
from limbeck.search.manifest import is_an_index
from limbeck.search.sparse import bm25_candidates
from limbeck.stores import EncodingStore, store_path


def run_evaluation(request: Request) -> Evaluation:
    """Measure what `request` asks for."""
    if request.task is not None and request.task not in TASKS:
        raise LimbeckError(f"unknown task {request.task!r}; {did_you_mean(request.task, TASKS)}")
    if request.lengths is not None and is_a_run(request.model):
        raise LimbeckError(f"--lengths: {request.model} reads no texts; give a model")
    return by_kind(load(request.data), partial(_evaluate_ranking, request), partial(_evaluate_pairs, request))


def _refuse_options_of_others(request: Request) -> None:
    """Refuse a task that a ranking set does not have, and index options without an index."""
    if request.task == PAIRS:
        raise LimbeckError(f"{request.data}: contains rankings, not pairs; use --task rerank or retrieve")
    if request.head is not None:
        raise LimbeckError("--head requires pairs, and this data set contains rankings; leave it out")
    indexes = [name for name in (request.model, request.against) if name and is_an_index(name)]
    for option in ("mode", "fusion", "alpha"):
        if getattr(request, option) is not None and not indexes:
            raise LimbeckError(f"--{option}: requires an index; make one with `limbeck index`")
    _refuse_the_same_search(request)
    if request.task == "rerank" and indexes:
        raise LimbeckError(
            f"{indexes[0]}: is an index, which can only retrieve; use --task retrieve, or give its model"
        )
    _refuse_contradictions(request, indexes)


def _refuse_the_same_search(request: Request) -> None:
    """Require that two searches of one index differ, and that options of the second have an index."""
    rival = request.against is not None and is_an_index(request.against)
    for option in ("against_mode", "against_fusion", "against_alpha"):
        if getattr(request, option) is not None and not rival:
            raise LimbeckError(f"--{option.replace('_', '-')}: requires an index to compare with; add --against INDEX")
    same = rival and Path(str(request.against)).resolve() == Path(request.model).resolve()
    if same and request.searching() == request.searching(rival=True):
        remedy = "add --against-mode, --against-fusion or --against-alpha"
        raise LimbeckError(f"--against {request.against}: is searched in the same way as {request.model}; {remedy}")


def _refuse_contradictions(request: Request, indexes: Sequence[str]) -> None:
    """Refuse candidates for retrieval, which searches the whole corpus; only re-ranking has candidates."""
    if request.reranks and (request.task == "retrieve" or indexes):
        option = "--add-judged" if request.add_judged else f"--candidates {request.candidates}"
        remedy = "leave it out" if indexes else "leave it out, or use --task rerank"
        raise LimbeckError(f"{option}: requires --task rerank, because retrieval searches the whole corpus; {remedy}")
    if request.candidates == TOKENS and (request.task == "rerank" or indexes):
        raise LimbeckError("--candidates tokens requires a ColBERT and --task retrieve; change one of them")


def size_in_mb(matcher: Matcher) -> float:
    """The size of the weights in memory."""
    return sum(parameter.numel() * parameter.element_size() for parameter in matcher.parameters()) / 1e6


def _evaluate_pairs(request: Request, data: PairData) -> Evaluation:
    if request.task not in (None, PAIRS):
        raise LimbeckError(f"{request.data}: contains pairs, not rankings; use --task pairs")
    measured = PairEvaluation(request, data)
    matcher = _loaded(request)
    rival = load_matcher(request.against) if request.against is not None else None
    return replace(measured.run(matcher, rival), size_mb=size_in_mb(matcher))


def _loaded(request: Request) -> Matcher:
    """The model to measure, with its length limited as requested."""
    matcher = load_matcher(request.model)
    if request.lengths is not None:
        shorten(matcher, *request.lengths)
    return matcher


def _evaluate_ranking(request: Request, data: RankingData) -> Evaluation:
    _refuse_options_of_others(request)
    measures = [*(request.measures or ["ndcg@10", "mrr@10", f"recall@{min(request.depth, 100)}"]), *request.also]
    measures = [canonical_name(name) for name in measures]  # report a mistake before the work starts
    only_answers = all(map(needs_answers, measures)) and bool(data.answers)
    judged = data.answered_judgements(request.split) if only_answers else data.judgements(request.split)
    query_ids = sample(sorted(judged), request.limit, request.seed)
    qrels = {query: judged[query] for query in query_ids}
    require_answers(data, measures, query_ids)
    if not only_answers:
        _require_relevant(request, qrels)
    ranker = _Ranker(request, data, query_ids)
    run, task = ranker.rank(request.model)
    result = evaluate_run(run, qrels, measures, request.relevance_level, data)
    comparisons: tuple[Comparison, ...] = ()
    if request.against is not None:
        other, _ = ranker.rank(request.against, rival=True)
        baseline = evaluate_run(other, qrels, measures, request.relevance_level, data)
        comparisons = tuple(compare_rankings(result, baseline, name) for name in result.means)
    if request.run is not None:
        write_run(run, request.run)
    found = Evaluation(
        task,
        request.split,
        len(query_ids),
        result.means,
        comparisons=comparisons,
        model=request.model,
        data=request.data,
        against=request.against,
        available=len(judged),
        settings=_settings(request, task),
        notes=(_described(request, data, task),),
    )
    return replace(found, **_costs(ranker, request, task))


def _require_relevant(request: Request, qrels: Qrels) -> None:
    """Refuse judgements without a relevant document: every measure would be 0 for any model."""
    best = max((grade for grades in qrels.values() for grade in grades.values()), default=0)
    if best < 1:
        problem = f"no document of split {request.split!r} is judged relevant (the best grade is {best})"
        raise LimbeckError(f"{request.data}: {problem}; choose another --split, or add judgements above 0")
    if best < request.relevance_level:
        problem = f"no document of split {request.split!r} has a grade of {request.relevance_level} or more"
        raise LimbeckError(f"{request.data}: {problem}; give --relevance-level {best} or less")


def _settings(request: Request, task: str) -> dict[str, Any]:
    """The settings that decide the numbers; null means the default of the index or the model."""
    found = {name: getattr(request, name) for name in ("depth", "relevance_level", "limit", "seed", "lengths")}
    found |= request.searching() | {f"against_{name}": value for name, value in request.searching(rival=True).items()}
    if task == "rerank":
        return {"candidates": request.candidates or "bm25", "add_judged": request.add_judged, **found}
    return {"candidates": request.candidates, "add_judged": False, **found}


def _described(request: Request, data: RankingData, task: str) -> str:
    relevant = f"relevant: grade {request.relevance_level} or more"
    if task == "rerank":
        judged = " and the judged positives" if request.add_judged else ""
        return f"candidates: the {request.depth:,} best of {request.candidates or 'bm25'}{judged}; {relevant}"
    if task == "run file":
        return f"the ranking in {request.model}; {relevant}"
    how = ", found by an index over tokens" if request.candidates == TOKENS else ""
    return f"the {request.depth:,} best of {len(data.corpus):,} documents{how}; {relevant}"


def _costs(ranker: _Ranker, request: Request, task: str) -> dict[str, Any]:
    """Milliseconds, pairs per second and megabytes, as far as they can be measured."""
    if is_an_index(request.model):
        index = ranker.index(request.model)
        timed = ranker.data.queries.take(ranker.data.queries.rows(ranker.query_ids[:TIMED_QUERIES]))
        how = (request.mode, request.fusion, request.alpha)
        total = search_timings(index, timed, min(request.depth, 10), *how)["total"]
        return {"ms_per_query": total.p50_ms, "size_mb": folder_bytes(request.model) / 1e6}
    matcher = ranker.matchers.get((request.model, False))
    if matcher is None:
        return {}
    found = ranker.token_indexes.get((request.model, False))
    if found is not None:

        def search(query: str) -> None:
            search_tokens(found, matcher, ranker.data, [query], min(request.depth, 10))

        per_passage = found.bytes / len(ranker.data.corpus)
        ms = measure_latency(search, ranker.query_ids[:TIMED_QUERIES]).p50_ms
        return {"ms_per_query": ms, "size_mb": size_in_mb(matcher), "bytes_per_passage": per_passage}
    if task != "rerank":
        ms_per_query = retrieval_ms(matcher, ranker.data, ranker.query_ids, min(request.depth, 10))
        return {"ms_per_query": ms_per_query, "size_mb": size_in_mb(matcher)}
    speed = rerank_speed(ranker.scorer(request.model), ranker.data, ranker.lists())
    times = {"ms_per_query": speed.ms_per_query, "pairs_per_second": speed.pairs_per_second} if speed else {}
    return {**times, "size_mb": size_in_mb(matcher)}


def searches_all(request: Request, matcher: Matcher) -> bool:
    """Whether a model is measured by a search of the whole corpus, if there is no model to compare with."""
    retrieves = request.task == "retrieve" or (request.task is None and not request.reranks)
    return retrieves and can_search(matcher) and not is_an_index(request.model)


def is_a_run(name: str) -> bool:
    """Whether a name is a ranking rather than a model."""
    return name == "bm25" or Path(name).is_file() or is_an_index(name)


class _Ranker:
    """Runs of several models over the same queries and candidates."""

    def __init__(self, request: Request, data: RankingData, query_ids: list[str]) -> None:
        self.request, self.data, self.query_ids = request, data, query_ids
        self.indexes: dict[str, SearchIndex] = {}
        # by name and whether it is the model to compare with, which may be the same model without limits
        self.matchers: dict[tuple[str, bool], Matcher] = {}
        self.token_indexes: dict[tuple[str, bool], TokenIndex] = {}
        self._scorers: dict[tuple[str, bool], Scorer] = {}
        self._lists: dict[str, list[str]] | None = None

    def rank(self, name: str, rival: bool = False) -> tuple[Candidates, str]:
        """The run of a model, of BM25, or of a run file, and how it was made."""
        if name == "bm25":
            return bm25_candidates(self.data, self.query_ids, self.request.depth), "retrieve"
        if is_an_index(name):
            return self._searched(self.index(name), rival), "retrieve"
        if is_a_run(name):
            return read_run(name), "run file"
        matcher = self.matcher(name, rival)
        if self.task == "rerank":
            return rerank(self.scorer(name, rival), self.data, self.lists()), "rerank"
        if self.request.candidates == TOKENS:
            index = self.token_indexes[name, rival] = token_index(matcher, self.data, self._store(matcher))
            return search_tokens(index, matcher, self.data, self.query_ids, self.request.depth), "retrieve"
        return retrieve(matcher, self.data, self.query_ids, self.request.depth, self._store(matcher)), "retrieve"

    def matcher(self, name: str, rival: bool = False) -> Matcher:
        if (name, rival) not in self.matchers:
            self.matchers[name, rival] = load_matcher(name) if rival else _loaded(self.request)
        return self.matchers[name, rival]

    def scorer(self, name: str, rival: bool = False) -> Scorer:
        """The matcher; if it encodes documents separately, their vectors are kept to measure its speed."""
        if (name, rival) not in self._scorers:
            matcher = self.matcher(name, rival)
            self._scorers[name, rival] = Remembering(matcher) if not rival and encodes_apart(matcher) else matcher
        return self._scorers[name, rival]

    def index(self, name: str) -> SearchIndex:
        if name not in self.indexes:
            self.indexes[name] = SearchIndex.open(name)
        return self.indexes[name]

    def _searched(self, index: SearchIndex, rival: bool) -> Candidates:
        grades = self.data.qrels.get(self.request.split, {})
        judged = list({key for query in self.query_ids for key in grades.get(query, {})})
        if judged and (index.collection.find(judged) < 0).all():
            problem = (
                f"contains none of the {len(judged):,} documents that {self.data.name} judges (e.g. {judged[0]!r})"
            )
            raise LimbeckError(f"{index.path}: {problem}; give the data that the index was built from")
        how = self.request.searching(rival)
        index.check(**how)
        return index.run(self.data.queries, self.request.depth, self.query_ids, **how)

    @cached_property
    def task(self) -> str:
        """The same task for all models: retrieval if all of them can, otherwise re-ranking of the same candidates."""
        if self.request.task is not None:
            return self.request.task
        if self.request.reranks:
            return "rerank"
        named = [(self.request.model, False), (self.request.against, True)]
        matchers = [self.matcher(name, rival) for name, rival in named if name and not is_a_run(name)]
        return "retrieve" if all(map(can_search, matchers)) else "rerank"

    def lists(self) -> dict[str, list[str]]:
        """The candidates of each query."""
        if self._lists is None:
            request = self.request
            wanted = request.candidates or "bm25"
            source = candidate_run(self.data, self.query_ids, wanted, request.split, request.depth)
            found = first_of(source, self.query_ids, request.depth)
            judged = self.data.qrels.get(request.split, {})
            self._lists = with_judged(found, judged) if request.add_judged else found
        return self._lists

    def _store(self, matcher: Matcher) -> EncodingStore | None:
        encoding = matcher.encoding(1)
        if self.request.store is None or encoding is None:
            return None
        key = {**matcher.identity(1), "side": "document"}
        return EncodingStore.open(store_path(self.request.store, key), key, encoding.dim, tokens=encoding.tokens)
