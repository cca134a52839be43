"""Exact search by inner product: every query with every document, in blocks."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import torch

from limbeck.errors import LimbeckError
from limbeck.search.topk import best, keys, unpack

_SCORES = 2**22  # scores in memory at a time


def comparable(vectors: np.ndarray, similarity: str) -> np.ndarray:
    """Vectors whose inner product is the similarity, `dot` or `cosine`: [n, dim] float32."""
    vectors = np.asarray(vectors, dtype=np.float32)
    if similarity == "dot":
        return vectors
    return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)


def exact_search(queries: np.ndarray, blocks: Iterable[np.ndarray], k: int) -> tuple[np.ndarray, np.ndarray]:
    """The k best rows of all blocks for each query: scores and rows [queries, k], best first.

    Rows are numbered through the blocks in order; on equal scores the earlier row comes first. Memory holds the best so
    far, and the scores of some queries with one block, never those of all queries with all documents.
    """
    left = torch.from_numpy(np.ascontiguousarray(queries, dtype=np.float32))
    _require_finite(queries, "query", 0)
    kept = torch.empty((len(left), 0), dtype=torch.int64)  # keys of the best rows so far, [queries, up to k]
    row = 0
    for block in blocks:
        _require_finite(block, "document", row)
        right = torch.from_numpy(np.ascontiguousarray(block, dtype=np.float32)).T  # [dim, rows of the block]
        step = max(1, _SCORES // max(1, right.shape[1]))
        merged = []
        for start in range(0, len(left), step):
            found = best(keys(left[start : start + step] @ right, row), k)
            merged.append(best(torch.cat([kept[start : start + step], found], dim=1), k))
        kept = torch.cat(merged) if merged else kept
        row += len(block)
    scores, rows = unpack(kept)
    return scores.numpy(), rows.numpy()


def _require_finite(vectors: np.ndarray, what: str, first_row: int) -> None:
    bad = np.flatnonzero(~np.isfinite(vectors).all(axis=1))
    if len(bad):
        place = first_row + int(bad[0]) + 1
        raise LimbeckError(
            f"the vector of {what} {place} is not finite: the model diverged or is damaged; use another model"
        )
