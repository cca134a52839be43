"""One ranking from a dense and a sparse one: Eq. 7 of TCT-ColBERT, and reciprocal rank fusion as its baseline.

A list is (rows, scores), best first, each row once. Both functions rank the union of two lists; on equal scores the
smaller row comes first.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from limbeck.errors import LimbeckError

List = tuple[np.ndarray, np.ndarray]  # rows (int64) and scores (float32)


@dataclass(frozen=True)
class Fused:
    """The k best of two lists, best first, and the score of each part."""

    rows: np.ndarray  # int64
    scores: np.ndarray  # float64: the sum of two float32 scores is not rounded again
    dense: np.ndarray  # float32, NaN if the dense list does not have the document
    sparse: np.ndarray  # float32, NaN if the sparse list does not have the document


def fuse(dense: List, sparse: List, alpha: float, k: int) -> Fused:
    """score = alpha * sparse + dense; a document missing from one list takes that list's minimum (Eq. 7).

    An empty list has no minimum: its part is 0 for all, and the order of the other list is kept.
    """
    require_alpha(alpha)
    parts = [np.append(scores, scores.min() if len(scores) else 0).astype(np.float64) for _, scores in (dense, sparse)]
    rows, in_dense, in_sparse = _union(dense[0], sparse[0])
    scores = alpha * parts[1][in_sparse] + parts[0][in_dense]
    return _best(rows, scores, (dense[1], in_dense), (sparse[1], in_sparse), k)


def reciprocal_rank_fusion(dense: List, sparse: List, k: int, constant: float = 60.0) -> Fused:
    """score = sum over the lists that have the document of 1 / (constant + rank), ranks counted from 1.

    It ignores the scale of scores and has no parameter to tune (Cormack, Clarke and Büttcher, 2009, with constant 60).
    """
    parts = [np.append(1 / (constant + np.arange(1, len(rows) + 1)), 0) for rows, _ in (dense, sparse)]
    rows, in_dense, in_sparse = _union(dense[0], sparse[0])
    scores = parts[0][in_dense] + parts[1][in_sparse]
    return _best(rows, scores, (dense[1], in_dense), (sparse[1], in_sparse), k)


def require_alpha(alpha: float) -> None:
    """Refuse an invalid weight."""
    if not math.isfinite(alpha) or alpha < 0:
        raise LimbeckError(f"alpha is {alpha}; it is the weight of the sparse scores, a finite number from 0 up")


def _union(dense: np.ndarray, sparse: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The rows of either list, ascending, and the position of each in both lists: -1, the last position, if missing.

    A row and its position are sorted as one 64-bit number, which is several times faster than looking rows up.
    """
    both = np.concatenate([dense, sparse])
    packed = np.sort(both << 32 | np.arange(len(both)))
    rows, places = packed >> 32, packed & 0xFFFFFFFF
    fresh = np.ones(len(both), dtype=bool)  # not the second occurrence of a row
    fresh[1:] = rows[1:] != rows[:-1]
    rank = np.empty(len(both), dtype=np.int64)  # of each entry's row among the union's
    rank[places] = np.cumsum(fresh) - 1
    union = rows[fresh]
    in_dense, in_sparse = np.full((2, len(union)), -1)
    in_dense[rank[: len(dense)]] = np.arange(len(dense))
    in_sparse[rank[len(dense) :]] = np.arange(len(sparse))
    return union, in_dense, in_sparse


def _best(rows: np.ndarray, scores: np.ndarray, dense: List, sparse: List, k: int) -> Fused:
    """The k best of ascending rows; a part is given as its list's scores and the position of each row in the list."""
    if k < 1:
        raise LimbeckError(f"k is {k}; ask for 1 document or more")
    kept = np.arange(len(rows))
    if k < len(rows):  # only rows that can be among the k best are sorted
        kept = np.flatnonzero(scores >= np.partition(scores, len(rows) - k)[len(rows) - k])
    kept = kept[np.argsort(-scores[kept], kind="stable")[:k]]
    own = [np.append(listed, np.float32(np.nan))[places[kept]] for listed, places in (dense, sparse)]
    return Fused(rows[kept], scores[kept], *own)
