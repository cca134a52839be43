"""Tune an index: search both lists of held-out queries once, find alpha, and save it in the index."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from limbeck.data import Qrels, RankingData, load
from limbeck.data.by_kind import require_ranking
from limbeck.errors import LimbeckError
from limbeck.evaluation.measure_names import canonical_name, needs_answers
from limbeck.evaluation.tune import DEPTH, Lists, Tuning, tune_alpha
from limbeck.progress import progress, say
from limbeck.search.hybrid import List, require_alpha
from limbeck.search.index import SearchIndex

LIMIT = 6000  # queries, as in the paper
_QUERIES = 64  # queries searched between two progress updates


@dataclass(frozen=True)
class TunedIndex:
    """The result, the queries used, the alpha that the index had before, and whether the new one was saved."""

    tuning: Tuning
    data: str
    split: str
    before: float | None = None
    written: bool = True


def tune_index(
    path: str | Path,
    source: str,
    split: str | None = None,
    measure: str = "ndcg@10",
    alphas: Sequence[float] | None = None,
    limit: int = LIMIT,
    write: bool | None = None,
) -> TunedIndex:
    """Find alpha on the judged queries of a split, and save it in the index.

    By default it is saved only if it beats reciprocal rank fusion significantly: on a few queries some alpha always
    looks best, and the index could become worse with it.
    """
    measure = canonical_name(measure)  # report a mistake before the work starts
    if needs_answers(measure):
        raise LimbeckError(f"--measure {measure}: alpha is tuned on judged documents; use ndcg@10 or recall@k")
    for alpha in alphas or ():
        require_alpha(alpha)
    data = require_ranking(load(source), source, remedy="give a set with queries and judgements")
    split = held_out(data, split)
    qrels = drawn(data.judgements(split), limit)
    if not any(grade > 0 for grades in qrels.values() for grade in grades.values()):
        problem = f"{source}: no document of split {split!r} is judged relevant, so all alphas are equally good"
        raise LimbeckError(f"{problem}; choose another --split, or add judgements above 0")
    index = SearchIndex.open(path)
    _require_documents(index, path, qrels, source)
    tuning = tune_alpha(_lists(index, data, list(qrels)), qrels, index.collection.find, measure, alphas)
    written = tuning.beats_rrf if write is None else write
    if written:
        SearchIndex.set_alpha(path, tuning.alpha)
    return TunedIndex(tuning, data.name, split, index.manifest.alpha, written)


def held_out(data: RankingData, split: str | None) -> str:
    """The split to tune on: the requested one, otherwise dev, otherwise train. Test is only used if requested."""
    if split == "test":
        say("tuned on test: results on these queries will look too good; report on other queries")
    if split is not None:
        data.judgements(split)
        return split
    if "dev" in data.qrels:
        return "dev"
    if "train" in data.qrels:
        say(
            "tuned on train, because there is no dev split: if the model was trained on these queries, alpha is too low"
        )
        return "train"
    there = f"only {', '.join(data.qrels)}" if data.qrels else "none at all"
    raise LimbeckError(f"{data.name}: has no judgements for dev or train to tune on ({there}); choose with --split")


def drawn(qrels: Qrels, limit: int) -> Qrels:
    """At most `limit` queries, drawn at random with a fixed seed, because neighbours in a file are often similar."""
    queries = sorted(qrels)
    if len(queries) > limit:
        queries = [queries[at] for at in sorted(np.random.default_rng(0).permutation(len(queries))[:limit])]
    return {query: qrels[query] for query in queries}


def _require_documents(index: SearchIndex, path: str | Path, qrels: Qrels, source: str) -> None:
    judged = list({document for grades in qrels.values() for document in grades})
    if (index.collection.find(judged) < 0).all():
        problem = f"contains none of the {len(judged):,} documents that {source} judges (e.g. {judged[0]!r})"
        raise LimbeckError(f"{path}: {problem}; give the data that the index was built from")


def _lists(index: SearchIndex, data: RankingData, queries: Sequence[str]) -> Lists:
    lists: dict[str, tuple[List, List]] = {}
    with progress("Searching", len(queries)) as advance:
        for start in range(0, len(queries), _QUERIES):
            some = queries[start : start + _QUERIES]
            found = index.candidates(data.queries.take(data.queries.rows(some)), DEPTH)
            lists.update(zip(some, zip(found.dense, found.sparse, strict=True), strict=True))
            advance(len(some))
    return lists
