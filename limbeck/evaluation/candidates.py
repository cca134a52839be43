"""Candidate lists from several sources, optionally with all relevant documents added.

Re-ranking BM25's lists as they are measures what a user of the pipeline would see: a relevant document that BM25
misses is lost. Some papers measure only the matcher instead: for each question of Natural Questions, Defense ranks its
positives, 100 documents from BM25 and up to 100 random passages. Do not compare values of the two settings.

    lists = with_random(with_judged(bm25_candidates(data, query_ids, 100), qrels), data.corpus, 100)
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from limbeck.data.dataset import Candidates, Qrels, RankingData, Texts, positives, ranked
from limbeck.data.trec import read_run
from limbeck.errors import LimbeckError
from limbeck.evaluation.rank import Lists
from limbeck.search.index import SearchIndex
from limbeck.search.sparse import SparseIndex, bm25_candidates

GIVEN = "given"  # source of candidates: the lists that come with the data
ALL = "all"  # split: all queries


def candidate_run(
    data: RankingData, query_ids: Sequence[str], source: str, split: str, depth: int, index: SparseIndex | None = None
) -> Candidates:
    """Candidates from a source: `bm25`, `given` (by the data), a TREC run file, or the folder of an index. An index is
    searched with its vectors if it has any.

    A source without any of the queries is refused.
    """
    if source == "bm25":
        return bm25_candidates(data, query_ids, depth, index)
    run: Candidates
    if source == GIVEN and split == ALL:
        run = {query: lists[query] for lists in data.runs.values() for query in query_ids if query in lists}
    elif source == GIVEN:
        run = data.candidates(split)
    elif Path(source).is_dir():
        run = _searched(data, query_ids, source, depth)
    else:
        run = read_run(source)
    if query_ids and not any(query in run for query in query_ids):
        known = f"it has {next(iter(run))!r}" if run else "it has no queries"
        problem = f"has no candidates for the {len(query_ids):,} queries of {split!r} ({known})"
        raise LimbeckError(f"{data.name if source == GIVEN else source}: {problem}; check the query ids")
    for query in query_ids if source != GIVEN else []:
        documents = list(run.get(query, {}))
        unknown = np.flatnonzero(data.corpus.find(documents) < 0)
        if len(unknown):
            problem = f"names document {documents[unknown[0]]!r} for query {query!r}, which the corpus does not have"
            raise LimbeckError(f"{source}: {problem}; add it to the corpus, or remove it from the run")
    return run


def _searched(data: RankingData, query_ids: Sequence[str], folder: str, depth: int) -> Candidates:
    index = SearchIndex.open(folder)
    mode = "dense" if index.mode() == "hybrid" else None
    return index.run(data.queries, depth, query_ids, mode=mode)


def first_of(run: Candidates, query_ids: Sequence[str], depth: int) -> dict[str, list[str]]:
    """The `depth` best documents of each query in a run; an empty list if the run does not have the query."""
    return {query: ranked(run[query])[:depth] if query in run else [] for query in query_ids}


def with_judged(candidates: Lists, qrels: Qrels) -> dict[str, list[str]]:
    """Each list, with missing relevant documents (grade 1 or more) added at the front."""
    return {
        query: list(dict.fromkeys([*positives(qrels.get(query, {})), *documents]))
        for query, documents in candidates.items()
    }


def with_random(candidates: Lists, corpus: Texts, count: int, seed: int = 0) -> dict[str, list[str]]:
    """Each list with up to `count` more documents, drawn uniformly from the corpus; duplicates are dropped.

    The documents drawn for a query depend only on the seed and the query id, not on the other queries.
    """
    longer = {}
    for query, documents in candidates.items():
        generator = np.random.default_rng([seed, *query.encode()])
        drawn = generator.choice(len(corpus), size=min(count, len(corpus)), replace=False)
        longer[query] = list(dict.fromkeys([*documents, *corpus.ids_at(drawn)]))
    return longer
