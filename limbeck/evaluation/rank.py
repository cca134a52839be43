"""The two ways to get a run from a matcher: re-rank given candidates, or search the whole corpus.

candidates = bm25_candidates(data, query_ids, k=1000)
evaluate_run(rerank(matcher, data, candidates), qrels)
evaluate_run(retrieve(matcher, data, query_ids), qrels)
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import Protocol

import numpy as np

from limbeck.data.dataset import RankingData, Run
from limbeck.errors import LimbeckError
from limbeck.matchers.encoding import InMemory, Vectors, as_encoded
from limbeck.matchers.encoding_matcher import EncodingMatcher, encodes_apart
from limbeck.matchers.pair_scorer import PairScorer
from limbeck.progress import progress
from limbeck.search.exact import exact_search
from limbeck.search.late import TokenIndex, exact_late_search
from limbeck.stores.encodings import EncodingStore, encode_with_store
from limbeck.stores.ragged import Ragged

_TEXTS = 4096  # texts encoded at a time
_PAIRS = 8192  # pairs scored at a time

Lists = Mapping[str, Collection[str]]  # query id -> document ids; a run also qualifies


class Scorer(Protocol):
    """Any matcher: raw scores [n] of (query, document) pairs."""

    def score(self, pairs: list[tuple[str, str]]) -> np.ndarray: ...


def can_search(matcher: Scorer) -> bool:
    """Whether a matcher can search the whole corpus."""
    return encodes_apart(matcher) and matcher.interaction.search is not None


def rerank(matcher: Scorer, data: RankingData, candidates: Lists) -> Run:
    """Score each query's candidates. Each result is in rank order.

    If documents can be encoded separately, each is encoded once even if it is on several lists, and one block of them
    is in memory at a time. Relevant documents that are not candidates limit what any matcher can reach;
    `limbeck.evaluation.candidates` can add them.
    """
    query_ids = list(candidates)
    listed = [data.corpus.rows(list(candidates[query])) for query in query_ids]
    owners = np.repeat(np.arange(len(query_ids)), [len(rows) for rows in listed])  # [pairs] positions in query_ids
    rows = np.concatenate([*listed, np.zeros(0, dtype=np.int64)]).astype(np.int64)  # [pairs] rows of the corpus
    texts = data.queries.take(data.queries.rows(query_ids))
    if encodes_apart(matcher):
        scores = _encoded_scores(matcher, data, texts, owners, rows)
    else:
        scores = _pair_scores(matcher, data, texts, owners, rows)
    bad = np.flatnonzero(~np.isfinite(scores))
    if len(bad):
        pair = f"query {query_ids[owners[bad[0]]]!r}, document {data.corpus.id_at(int(rows[bad[0]]))!r}"
        raise LimbeckError(f"the score of {pair} is not finite: the model diverged or is damaged; use another model")
    ends = np.cumsum([len(part) for part in listed])
    return {
        query: _in_order(data, rows[end - len(part) : end], scores[end - len(part) : end])
        for query, part, end in zip(query_ids, listed, ends, strict=True)
    }


def retrieve(
    matcher: Scorer, data: RankingData, query_ids: Sequence[str], k: int = 1000, store: EncodingStore | None = None
) -> Run:
    """The k best documents of the whole corpus for each query, by exact search. Each result is in rank order.

    With a `store`, document vectors come from it, and missing ones are encoded and stored; without one they are
    computed block by block and dropped.
    """
    if not (encodes_apart(matcher) and can_search(matcher)):
        problem = "retrieval requires a dual encoder or a ColBERT"
        raise LimbeckError(f"{problem}; use --task rerank with this model")
    if not query_ids:
        return {}
    queries = matcher.encode(data.queries.take(data.queries.rows(query_ids)), 0)
    documents = _document_blocks(matcher, data, store)
    if matcher.interaction.search == "inner_product":
        scores, rows = exact_search(searchable(matcher, queries, 0), (searchable(matcher, b, 1) for b in documents), k)
    else:
        scores, rows = exact_late_search(matcher.interaction, queries, documents, k)  # type: ignore[arg-type]
    return {query: _in_order(data, rows[at], scores[at]) for at, query in enumerate(query_ids)}


def searchable(matcher: EncodingMatcher, vectors: Vectors, position: int) -> np.ndarray:
    """Encodings as vectors [n, dim] float32 whose inner product is the score."""
    return matcher.interaction.prepare(as_encoded(vectors), position)[0].numpy()


def token_index(matcher: Scorer, data: RankingData, store: EncodingStore | None = None) -> TokenIndex:
    """An index for ColBERT's own search. It holds all token vectors in memory; `retrieve` reads blocks and is exact."""
    if not (encodes_apart(matcher) and matcher.interaction.search == "maxsim"):
        raise LimbeckError("candidates: tokens requires a ColBERT; use retrieve, or bm25 candidates")
    return TokenIndex(Ragged.join(list(_document_blocks(matcher, data, store))))  # type: ignore[arg-type]


def search_tokens(index: TokenIndex, matcher: Scorer, data: RankingData, query_ids: Sequence[str], k: int) -> Run:
    """The k best documents of each query by MaxSim, among those with a token near one of the query's; in rank order."""
    assert encodes_apart(matcher)
    if not query_ids:
        return {}
    queries = matcher.encode(data.queries.take(data.queries.rows(query_ids)), 0)
    found = index.search(matcher.interaction, queries, k)  # type: ignore[arg-type]
    return {query: _in_order(data, rows, scores) for query, (scores, rows) in zip(query_ids, found, strict=True)}


def _document_blocks(matcher: EncodingMatcher, data: RankingData, store: EncodingStore | None) -> Iterator[Vectors]:
    """The encodings of the corpus, block by block."""
    corpus, encode = data.corpus, partial(matcher.encode, position=1)
    if store is not None:
        encode_with_store(store, (text for _, text in corpus.items()), encode, total=len(corpus))
    label = "Encoding documents" if store is None else "Searching"
    with progress(label, len(corpus)) as advance:
        for start in range(0, len(corpus), _TEXTS):
            texts = corpus.take(range(start, min(start + _TEXTS, len(corpus))))
            yield encode(texts) if store is None else store.encodings(store.rows(texts))
            advance(len(texts))


def _encoded_scores(
    matcher: EncodingMatcher, data: RankingData, queries: list[str], owners: np.ndarray, rows: np.ndarray
) -> np.ndarray:
    """Scores of the pairs, computed in blocks of distinct documents: [pairs]."""
    scores = np.zeros(len(rows), dtype=np.float32)
    left = InMemory(matcher.encode(queries, 0)) if len(rows) else None
    for block, pairs in _document_pairs(rows):
        assert left is not None
        scorer = PairScorer(matcher.interaction.folded(), [left, InMemory(matcher.encode(data.corpus.take(block), 1))])
        found = scorer.score(np.stack([owners[pairs], np.searchsorted(block, rows[pairs])], axis=1))
        scores[pairs] = _one_score(found)
    return scores


def _document_pairs(rows: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Blocks of distinct documents (ascending rows), each with the positions of its pairs."""
    order = np.argsort(rows, kind="stable")
    distinct, first = np.unique(rows[order], return_index=True)
    bounds = np.append(first, len(rows))
    with progress("Encoding documents", len(distinct)) as advance:
        for start in range(0, len(distinct), _TEXTS):
            block = distinct[start : start + _TEXTS]
            yield block, order[bounds[start] : bounds[start + len(block)]]
            advance(len(block))


def _pair_scores(
    matcher: Scorer, data: RankingData, queries: list[str], owners: np.ndarray, rows: np.ndarray
) -> np.ndarray:
    """Scores of the pairs, each computed separately: [pairs]."""
    scores = np.zeros(len(rows), dtype=np.float32)
    with progress("Scoring pairs", len(rows)) as advance:
        for start in range(0, len(rows), _PAIRS):
            some = slice(start, start + _PAIRS)
            documents = data.corpus.take(rows[some])
            pairs = [(queries[owner], text) for owner, text in zip(owners[some], documents, strict=True)]
            scores[some] = _one_score(np.asarray(matcher.score(pairs)).reshape(len(pairs), -1))
            advance(len(pairs))
    return scores


def _one_score(found: np.ndarray) -> np.ndarray:
    """Scores [pairs, 1] as [pairs]; several scores per pair give no ranking."""
    if found.shape[1] != 1:
        problem = f"the matcher gave {found.shape[1]} scores for each pair"
        raise LimbeckError(f"{problem}; ranking needs a matcher with one output")
    return found[:, 0]


def _in_order(data: RankingData, rows: np.ndarray, scores: np.ndarray) -> dict[str, float]:
    """Document id -> score, best first; on equal scores the earlier document of the list comes first."""
    order = np.argsort(-scores, kind="stable")
    return dict(zip(data.corpus.ids_at(rows[order]), scores[order].tolist(), strict=True))
