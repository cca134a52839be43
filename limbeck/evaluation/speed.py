"""How long one query takes, for whatever can be done ahead is done."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from limbeck.data.dataset import RankingData
from limbeck.evaluation.latency import Latency, measure_latency
from limbeck.evaluation.rank import Lists, Scorer, encodes_ahead, encodes_tokens
from limbeck.progress import progress, reporting, track
from limbeck.search.exact import exact_search

TIMED_QUERIES = 10
MOST_BYTES = 2**30  # of vectors, to time a search


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
        with progress("Encoding documents to time re-ranking", len(distinct)):
            vectors = encoder.encode_document(data.corpus.take(distinct))
        stored = {query: vectors[np.searchsorted(distinct, listed)] for query, listed in rows.items()}

        def rank(query: str) -> np.ndarray:
            return np.argsort(-(stored[query] @ encoder.encode_query([data.queries[query]])[0]))
    elif encodes_tokens(matcher):
        late = matcher
        label = "Encoding documents to time re-ranking"
        tokens = {query: late.encode_document(data.corpus.take(rows[query])) for query in track(timed, label)}

        def rank(query: str) -> np.ndarray:
            return np.argsort(-late.match(late.encode_query([data.queries[query]]), tokens[query])[0])
    else:
        texts = {query: data.corpus.take(listed) for query, listed in rows.items()}

        def rank(query: str) -> np.ndarray:
            return np.argsort(-matcher.score([(data.queries[query], document) for document in texts[query]]))

    mean = float(np.mean([len(listed) for listed in rows.values()]))
    with reporting(None):  # drawing a bar takes longer than encoding a query
        return RerankSpeed(measure_latency(rank, timed), mean)


def retrieval_ms(matcher: Scorer, data: RankingData, query_ids: Sequence[str], k: int) -> float | None:
    """Milliseconds to encode one query and search the whole corpus exactly, with vectors in memory; None where these
    would not be, or where a matcher has several a document.

    The documents' vectors are made up: an exact search takes as long whatever they are, and encoding takes minutes.
    """
    if not encodes_ahead(matcher):
        return None
    encoder = matcher
    texts = data.queries.take(data.queries.rows(query_ids[:TIMED_QUERIES]))
    width = encoder.encode_query(texts[:1]).shape[1]
    if not texts or len(data.corpus) * width * 4 > MOST_BYTES:
        return None
    vectors = np.random.default_rng(0).standard_normal((len(data.corpus), width), dtype=np.float32)

    def search(text: str) -> object:
        return exact_search(encoder.encode_query([text]), [vectors], k)

    with reporting(None):
        return measure_latency(search, texts).p50_ms
