"""The time of one query; everything that can be precomputed is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from limbeck.data.dataset import RankingData
from limbeck.evaluation.latency import Latency, measure_latency
from limbeck.evaluation.rank import Lists, Scorer, searchable
from limbeck.matchers.encoding import as_encoded
from limbeck.matchers.encoding_matcher import EncodingMatcher, encodes_apart
from limbeck.matchers.interactions import Prepared
from limbeck.progress import reporting, track
from limbeck.search.exact import exact_search

TIMED_QUERIES = 10
MOST_BYTES = 2**30  # maximum size of the vectors to time a search with


@dataclass(frozen=True)
class RerankSpeed:
    """Re-ranking the candidates of one query at a time: its time, and the resulting pairs per second."""

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
    """Time the re-ranking of a few queries' candidates; None if no query has any.

    A matcher that encodes texts separately gets its document encodings precomputed, as in production: its time is
    encoding the query plus the interaction.
    """
    timed = [query for query, documents in candidates.items() if len(documents)][:queries]
    if not timed:
        return None
    rank = one_query_ranker(matcher, data, {query: candidates[query] for query in timed})
    mean = float(np.mean([len(candidates[query]) for query in timed]))
    with reporting(None):  # drawing a progress bar takes longer than encoding a query
        return RerankSpeed(measure_latency(rank, timed), mean)


def one_query_ranker(matcher: Scorer, data: RankingData, candidates: Lists) -> Callable[[str], np.ndarray]:
    """What has to be done at query time to re-rank the candidates of a query, given its id; the rest is precomputed."""
    rows = {query: data.corpus.rows(list(documents)) for query, documents in candidates.items()}
    return _rank_encoded(matcher, data, rows) if encodes_apart(matcher) else _rank_texts(matcher, data, rows)


def _rank_encoded(
    matcher: EncodingMatcher, data: RankingData, rows: dict[str, np.ndarray]
) -> Callable[[str], np.ndarray]:
    """Re-rank one query's candidates; everything that does not depend on the query is precomputed."""
    interaction = matcher.interaction.folded()

    def prepared(texts: list[str], position: int) -> Prepared:
        return interaction.prepare(as_encoded(matcher.encode(texts, position), interaction.device), position)

    @torch.inference_mode()
    def rank(query: str) -> np.ndarray:
        scores = interaction([prepared([data.queries[query]], 0), stored[query]], None)  # [1, candidates]
        return np.argsort(-scores[0].cpu().numpy())

    with torch.inference_mode():
        encoding = track(list(rows.items()), "Encoding documents to time re-ranking")
        stored = {query: prepared(data.corpus.take(listed), 1) for query, listed in encoding}
    return rank


def _rank_texts(matcher: Scorer, data: RankingData, rows: dict[str, np.ndarray]) -> Callable[[str], np.ndarray]:
    """Re-rank one query's candidates by reading each of them together with the query."""
    texts = {query: data.corpus.take(listed) for query, listed in rows.items()}
    return lambda query: np.argsort(-matcher.score([(data.queries[query], document) for document in texts[query]]))


def retrieval_ms(matcher: Scorer, data: RankingData, query_ids: Sequence[str], k: int) -> float | None:
    """Milliseconds to encode one query and search the whole corpus exactly, with vectors in memory; None if they do not
    fit, or if a matcher has several vectors per document.

    The document vectors are random: an exact search takes the same time for all vectors, and encoding takes minutes.
    """
    if not (encodes_apart(matcher) and matcher.interaction.search == "inner_product"):
        return None
    encoder = matcher
    texts = data.queries.take(data.queries.rows(query_ids[:TIMED_QUERIES]))
    width = encoder.encoding(0).dim
    if not texts or len(data.corpus) * width * 4 > MOST_BYTES:
        return None
    vectors = np.random.default_rng(0).standard_normal((len(data.corpus), width), dtype=np.float32)

    def search(text: str) -> object:
        return exact_search(searchable(encoder, encoder.encode([text], 0), 0), [vectors], k)

    with reporting(None):
        return measure_latency(search, texts).p50_ms
