"""The sources of a training query's candidates. Judged positives are never sampled as negatives."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from limbeck.data import Candidates, Qrels, RankingData, ranked
from limbeck.evaluation import candidate_run
from limbeck.progress import track

# Ranked lists by the name of their source; called with the required depth.
RankedLists = Mapping[str, Callable[[int], Candidates]]


def candidate_pools(
    data: RankingData,
    query_ids: list[str],
    positives: Qrels,
    source: str,
    size: int,
    ranked_lists: RankedLists,
    seed: int,
) -> dict[str, np.ndarray]:
    """Each query's pool of `size` candidate documents (corpus rows) that are not judged positive.

    `source` is `uniform`, a key of `ranked_lists`, a TREC run file or an index's folder, or several joined by `+`.
    """
    parts = [source] if Path(source).exists() else source.split("+")
    share = -(-size // len(parts))
    pools: dict[str, list[np.ndarray]] = {query: [] for query in query_ids}
    for part in parts:
        if part == "uniform":
            for query in query_ids:
                pools[query].append(_uniform(data, query, positives.get(query, {}), share, seed))
            continue
        most_positives = max((len(positives.get(query, {})) for query in query_ids), default=0)
        depth = share + most_positives
        known = part in ranked_lists
        run = ranked_lists[part](depth) if known else candidate_run(data, query_ids, part, "train", depth)
        for query in track(query_ids, "Choosing candidates"):
            documents = ranked(run[query]) if query in run else []
            chosen = [document for document in documents if not _is_positive(positives, query, document)]
            pools[query].append(data.corpus.rows(chosen[:share]))
    return {query: _distinct(np.concatenate(found)) for query, found in pools.items()}


def _is_positive(positives: Qrels, query: str, document: str) -> bool:
    return positives.get(query, {}).get(document, 0) > 0


def _uniform(data: RankingData, query: str, judged: Mapping[str, int], count: int, seed: int) -> np.ndarray:
    """Documents drawn uniformly from the corpus, without the query's positives; reproducible by the seed."""
    taken = data.corpus.rows([document for document, grade in judged.items() if grade > 0])
    generator = np.random.default_rng([seed, *query.encode()])
    count = min(count, len(data.corpus) - len(taken))
    drawn = generator.choice(len(data.corpus), size=min(len(data.corpus), count + len(taken)), replace=False)
    return drawn[~np.isin(drawn, taken)][:count]


def _distinct(rows: np.ndarray) -> np.ndarray:
    """The rows without repeats, in order of first appearance."""
    _, first = np.unique(rows, return_index=True)
    return rows[np.sort(first)].astype(np.int64)
