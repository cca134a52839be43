"""How long one query takes, for whatever can be done ahead is done."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from limbeck.data.dataset import RankingData
from limbeck.evaluation.latency import Latency, measure_latency
from limbeck.evaluation.rank import Lists, Scorer, encodes_ahead, encodes_tokens
from limbeck.progress import reporting

TIMED_QUERIES = 10


@dataclass(frozen=True)
class RerankSpeed:
    """Re-ranking one query's candidates at a time: the time, and the pairs a second that it means."""

    latency: Latency
    pairs: float  # candidates per query, on average

    @property
    def ms_per_query(self) -> float:
        return self.latency.p50_ms

    @property
    def pairs_per_second(self) -> float:
        return self.pairs / self.latency.p50_ms * 1000


def rerank_speed(
    matcher: Scorer, data: RankingData, candidates: Lists, queries: int = TIMED_QUERIES
) -> RerankSpeed | None:
    """Time the re-ranking of a few queries' candidates; None where no query has any.

    A matcher that encodes ahead has its documents' vectors ready, as it would when it serves: its time is that of
    encoding the query and of the inner products, or of MaxSim.
    """
    timed = [query for query, documents in candidates.items() if len(documents)][:queries]
    if not timed:
        return None
    rows = {query: data.corpus.rows(candidates[query]) for query in timed}
    if encodes_ahead(matcher):
        encoder = matcher
        distinct = np.unique(np.concatenate(list(rows.values())))
        vectors = encoder.encode_document(data.corpus.take(distinct))
        stored = {query: vectors[np.searchsorted(distinct, listed)] for query, listed in rows.items()}

        def rank(query: str) -> np.ndarray:
            return np.argsort(-(stored[query] @ encoder.encode_query([data.queries[query]])[0]))
    elif encodes_tokens(matcher):
        late = matcher
        tokens = {query: late.encode_document(data.corpus.take(listed)) for query, listed in rows.items()}

        def rank(query: str) -> np.ndarray:
            return np.argsort(-late.match(late.encode_query([data.queries[query]]), tokens[query])[0])
    else:
        texts = {query: data.corpus.take(listed) for query, listed in rows.items()}

        def rank(query: str) -> np.ndarray:
            return np.argsort(-matcher.score([(data.queries[query], document) for document in texts[query]]))

    mean = float(np.mean([len(listed) for listed in rows.values()]))
    with reporting(None):  # drawing a bar takes longer than encoding a query
        return RerankSpeed(measure_latency(rank, timed), mean)
