"""Search with a vector per token: exactly, or with candidates from an index over the tokens (TCT-ColBERT Sec. 3.1).

ColBERT's own search has two steps. For every query token an approximate index finds the nearest document tokens; their
documents are the candidates. Then candidates are scored exactly, by MaxSim over all their tokens.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

import faiss
import numpy as np
import torch

from limbeck.errors import LimbeckError
from limbeck.progress import track
from limbeck.search.topk import best, keys, unpack
from limbeck.stores.ragged import Ragged

_QUERIES = 64  # queries scored against a block at a time


class TokenMatcher(Protocol):
    """The part of a matcher that late interaction needs: the scores [queries, documents] of encoded texts."""

    def match(self, queries: Ragged, documents: Ragged) -> np.ndarray: ...


def exact_late_search(
    matcher: TokenMatcher, queries: Ragged, blocks: Iterable[Ragged], k: int
) -> tuple[np.ndarray, np.ndarray]:
    """The k best documents of all blocks for each query: scores and rows [queries, k], best first.

    Rows are numbered through the blocks; on equal scores the earlier row comes first.
    """
    kept = torch.empty((len(queries), 0), dtype=torch.int64)
    row = 0
    for block in blocks:
        merged = []
        for start in range(0, len(queries), _QUERIES):
            some = np.arange(start, min(start + _QUERIES, len(queries)))
            found = keys(torch.from_numpy(matcher.match(queries.take(some), block)), row)
            merged.append(best(torch.cat([kept[start : start + _QUERIES], best(found, k)], dim=1), k))
        kept = torch.cat(merged) if merged else kept
        row += len(block)
    scores, rows = unpack(kept)
    return scores.numpy(), rows.numpy()


class TokenIndex:
    """An approximate index over all token vectors of a corpus: inverted lists of 8-bit vectors.

    For each query token, `probes` inverted lists are searched for `per_token` tokens. Both trade time for recall.
    """

    def __init__(self, documents: Ragged, seed: int = 0, lists: int | None = None) -> None:
        if not len(documents.vectors):
            raise LimbeckError("there are no token vectors to index; check that the corpus has texts")
        self.documents = documents
        self.owners = np.repeat(np.arange(len(documents)), documents.lengths)  # [tokens] the document of each token
        count, dim = documents.vectors.shape
        wanted = lists or max(1, int(4 * count**0.5))
        wanted = min(wanted, max(1, count // 39))  # faiss needs 39 vectors to train each list
        self.index = faiss.IndexIVFScalarQuantizer(
            faiss.IndexFlatIP(dim), dim, wanted, faiss.ScalarQuantizer.QT_8bit, faiss.METRIC_INNER_PRODUCT
        )
        self.index.cp.seed = seed + 1
        generator = np.random.default_rng(seed)
        sample = np.sort(generator.choice(count, size=min(count, 64 * wanted), replace=False))
        self.index.train(np.ascontiguousarray(documents.vectors[sample]))
        self.index.add(np.ascontiguousarray(documents.vectors))

    @property
    def bytes(self) -> int:
        """Bytes to keep: the vectors for MaxSim, and their 8-bit copies with a document number each."""
        return self.documents.vectors.nbytes + self.index.ntotal * (self.index.code_size + 8)

    def candidates(self, query: np.ndarray, probes: int = 16, per_token: int = 128) -> np.ndarray:
        """The rows of the documents with a token near one of the query's tokens [tokens, dim]."""
        self.index.nprobe = min(probes, self.index.nlist)
        _, found = self.index.search(np.ascontiguousarray(query), min(per_token, len(self.owners)))
        return np.unique(self.owners[found[found >= 0]])

    def search(
        self, matcher: TokenMatcher, queries: Ragged, k: int, probes: int = 16, per_token: int = 128
    ) -> list[tuple[np.ndarray, np.ndarray]]:
        """For each query the scores and rows of its k best candidates, best first."""
        results = []
        for number in track(range(len(queries)), "Searching"):
            query = queries.take(np.array([number]))
            rows = self.candidates(query.vectors, probes, per_token)
            scores = matcher.match(query, self.documents.take(rows))[0]
            top, places = unpack(best(keys(torch.from_numpy(scores)), k))
            results.append((top.numpy(), rows[places.numpy()]))
        return results
