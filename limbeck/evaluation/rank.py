"""The two ways to get a run from a matcher: re-rank given candidates, or search the whole corpus.

candidates = bm25_candidates(data, query_ids, k=1000)
evaluate_run(rerank(matcher, data, candidates), qrels)
evaluate_run(retrieve(matcher, data, query_ids), qrels)
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeGuard

import numpy as np

from limbeck.data.dataset import RankingData, Run
from limbeck.errors import LimbeckError
from limbeck.progress import progress
from limbeck.search.exact import exact_search
from limbeck.search.late import TokenIndex, exact_late_search
from limbeck.stores.encodings import EncodingStore, encode_with_store
from limbeck.stores.ragged import Ragged

_TEXTS = 4096  # encoded at a time
_PAIRS = 8192  # scored at a time

Lists = Mapping[str, Collection[str]]  # query id -> document ids; a run is one too


class Scorer(Protocol):
    """Any matcher: raw scores [n] of (query, document) pairs."""

    def score(self, pairs: list[tuple[str, str]]) -> np.ndarray: ...


class Encoder(Scorer, Protocol):
    """A matcher whose texts are encoded apart and meet in a dot product or a cosine."""

    similarity: str

    def encode_query(self, texts: list[str]) -> np.ndarray: ...

    def encode_document(self, texts: list[str]) -> np.ndarray: ...


class TokenEncoder(Scorer, Protocol):
    """A matcher that keeps a vector for every token of a text, and lets them meet in MaxSim."""

    similarity: str

    def encode_query(self, texts: list[str]) -> Ragged: ...

    def encode_document(self, texts: list[str]) -> Ragged: ...

    def match(self, queries: Ragged, documents: Ragged) -> np.ndarray: ...


def encodes_ahead(matcher: Scorer) -> TypeGuard[Encoder]:
    """Whether documents can be encoded once, before any query is known, and a pair costs one inner product."""
    return getattr(matcher, "similarity", None) in ("dot", "cosine")


def encodes_tokens(matcher: Scorer) -> TypeGuard[TokenEncoder]:
    """Whether documents can be encoded once, and a pair costs an inner product for every two tokens."""
    return getattr(matcher, "similarity", None) in ("maxsim", "meanmaxsim")


def can_search(matcher: Scorer) -> bool:
    """Whether a query can meet the whole corpus."""
    return encodes_ahead(matcher) or encodes_tokens(matcher)


def rerank(matcher: Scorer, data: RankingData, candidates: Lists) -> Run:
    """Score each query's candidates. Each list is in rank order.

    Where documents can be encoded ahead, each of them is encoded once, however many lists it is on, and one block of
    them is in memory at a time. Candidates that miss the relevant documents bound what any matcher can reach;
    `limbeck.evaluation.candidates` has the setting in which they are always there.
    """
    query_ids = list(candidates)
    listed = [data.corpus.rows(list(candidates[query])) for query in query_ids]
    owners = np.repeat(np.arange(len(query_ids)), [len(rows) for rows in listed])  # [pairs] positions in query_ids
    rows = np.concatenate([*listed, np.zeros(0, dtype=np.int64)]).astype(np.int64)  # [pairs] rows of the corpus
    texts = data.queries.take(data.queries.rows(query_ids))
    if encodes_ahead(matcher):
        scores = _encoded_scores(matcher, data, texts, owners, rows)
    elif encodes_tokens(matcher):
        scores = _late_scores(matcher, data, texts, owners, rows)
    else:
        scores = _pair_scores(matcher, data, texts, owners, rows)
    bad = np.flatnonzero(~np.isfinite(scores))
    if len(bad):
        pair = f"query {query_ids[owners[bad[0]]]!r}, document {data.corpus.id_at(int(rows[bad[0]]))!r}"
        raise LimbeckError(f"the score of {pair} is not finite; the model diverged or is damaged, use another one")
    ends = np.cumsum([len(part) for part in listed])
    return {
        query: _in_order(data, rows[end - len(part) : end], scores[end - len(part) : end])
        for query, part, end in zip(query_ids, listed, ends, strict=True)
    }


def retrieve(
    matcher: Scorer, data: RankingData, query_ids: Sequence[str], k: int = 1000, store: EncodingStore | None = None
) -> Run:
    """The k best documents of the whole corpus for each query, exactly. Each list is in rank order.

    With a `store`, document vectors are taken from it, and those it lacks are encoded into it; else they are computed
    and dropped, block by block.
    """
    if not can_search(matcher):
        problem = "retrieval needs a dual encoder or a ColBERT, which encode documents ahead"
        raise LimbeckError(f"{problem}; re-rank candidates with this one instead")
    if not query_ids:
        return {}
    texts = data.queries.take(data.queries.rows(query_ids))
    if encodes_ahead(matcher):
        blocks = (_prepared(matcher, block) for block in _document_blocks(matcher, data, store))
        scores, rows = exact_search(_query_vectors(matcher, texts), blocks, k)
    else:
        assert encodes_tokens(matcher)
        scores, rows = exact_late_search(
            matcher, matcher.encode_query(texts), _document_blocks(matcher, data, store), k
        )
    return {query: _in_order(data, rows[at], scores[at]) for at, query in enumerate(query_ids)}


def token_index(matcher: Scorer, data: RankingData, store: EncodingStore | None = None) -> TokenIndex:
    """For ColBERT's own search. All token vectors are in memory; `retrieve` reads them in blocks and is exact."""
    if not encodes_tokens(matcher):
        raise LimbeckError(
            "candidates: tokens needs a ColBERT, which has token vectors; use retrieve, or bm25 candidates"
        )
    parts = list(_document_blocks(matcher, data, store))
    return TokenIndex(
        Ragged(np.concatenate([part.vectors for part in parts]), np.concatenate([part.lengths for part in parts]))
    )


def search_tokens(index: TokenIndex, matcher: Scorer, data: RankingData, query_ids: Sequence[str], k: int) -> Run:
    """The k best documents of each query, in rank order: those that own a token near one of the query's, by MaxSim."""
    assert encodes_tokens(matcher)
    if not query_ids:
        return {}
    queries = matcher.encode_query(data.queries.take(data.queries.rows(query_ids)))
    found = index.search(matcher, queries, k)
    return {query: _in_order(data, rows, scores) for query, (scores, rows) in zip(query_ids, found, strict=True)}


def _document_blocks(matcher: Encoder | TokenEncoder, data: RankingData, store: EncodingStore | None) -> Iterator[Any]:
    """The vectors [documents, dim], or the token vectors (`Ragged`), of the corpus, block by block."""
    corpus = data.corpus
    if store is not None:
        encode_with_store(store, (text for _, text in corpus.items()), matcher.encode_document, total=len(corpus))
    label = "Encoding documents" if store is None else "Searching"
    with progress(label, len(corpus)) as advance:
        for start in range(0, len(corpus), _TEXTS):
            texts = corpus.take(range(start, min(start + _TEXTS, len(corpus))))
            if store is None:
                yield matcher.encode_document(texts)
            else:
                yield store.get_ragged(texts) if store.tokens == "ragged" else store.get(texts)
            advance(len(texts))


def _encoded_scores(
    matcher: Encoder, data: RankingData, queries: list[str], owners: np.ndarray, rows: np.ndarray
) -> np.ndarray:
    """Inner products of the pairs, by blocks of distinct documents: [pairs]."""
    scores = np.zeros(len(rows), dtype=np.float32)
    left = _query_vectors(matcher, queries) if len(rows) else np.zeros((0, 0), dtype=np.float32)
    for block, pairs in _document_pairs(rows):
        right = _prepared(matcher, matcher.encode_document(data.corpus.take(block)))
        for some in np.array_split(pairs, -(-len(pairs) // _PAIRS)):
            places = np.searchsorted(block, rows[some])
            scores[some] = np.einsum("nd,nd->n", left[owners[some]], right[places])
    return scores


def _late_scores(
    matcher: TokenEncoder, data: RankingData, queries: list[str], owners: np.ndarray, rows: np.ndarray
) -> np.ndarray:
    """MaxSim of the pairs, by blocks of distinct documents: [pairs]."""
    scores = np.zeros(len(rows), dtype=np.float32)
    left = matcher.encode_query(queries)
    for block, pairs in _document_pairs(rows):
        right = matcher.encode_document(data.corpus.take(block))
        for owner in np.unique(owners[pairs]):
            own = pairs[owners[pairs] == owner]
            found = matcher.match(left.take(np.array([owner])), right.take(np.searchsorted(block, rows[own])))
            scores[own] = found[0]
    return scores


def _document_pairs(rows: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Blocks of distinct documents (ascending rows), each with the positions of the pairs that have one of them."""
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
    """Scores of the pairs, each computed by itself: [pairs]."""
    scores = np.zeros(len(rows), dtype=np.float32)
    with progress("Scoring pairs", len(rows)) as advance:
        for start in range(0, len(rows), _PAIRS):
            some = slice(start, start + _PAIRS)
            documents = data.corpus.take(rows[some])
            pairs = [(queries[owner], text) for owner, text in zip(owners[some], documents, strict=True)]
            found = np.asarray(matcher.score(pairs))
            if found.shape != (len(pairs),):
                raise LimbeckError(
                    f"the matcher gave scores of shape {list(found.shape)} for {len(pairs)} pairs; "
                    "ranking needs a matcher with one output"
                )
            scores[some] = found
            advance(len(pairs))
    return scores


def _query_vectors(matcher: Encoder, texts: list[str]) -> np.ndarray:
    """[queries, dim], all of them in memory: they meet every document."""
    encoded = []
    with progress("Encoding queries", len(texts)) as advance:
        for start in range(0, len(texts), _TEXTS):
            block = texts[start : start + _TEXTS]
            encoded.append(matcher.encode_query(block))
            advance(len(block))
    return _prepared(matcher, np.concatenate(encoded))


def _prepared(matcher: Encoder, vectors: np.ndarray) -> np.ndarray:
    """Vectors whose inner product is the matcher's similarity: [n, dim] float32."""
    vectors = np.asarray(vectors, dtype=np.float32)
    if matcher.similarity == "dot":
        return vectors
    return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)


def _in_order(data: RankingData, rows: np.ndarray, scores: np.ndarray) -> dict[str, float]:
    """Document id -> score, best first; of equal scores the earlier one of the list first."""
    order = np.argsort(-scores, kind="stable")
    return dict(zip(data.corpus.ids_at(rows[order]), scores[order].tolist(), strict=True))
