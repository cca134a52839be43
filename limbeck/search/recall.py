"""The share of the exact top 10 that an approximate index finds, and the least effort that finds enough."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import numpy as np

from limbeck.progress import progress, track
from limbeck.search.dense import VectorSource
from limbeck.search.exact import exact_search

AT = 10
TARGET = 0.95
QUERIES = 200  # number of queries to measure with
_BLOCK = 8192


def exact_top(queries: np.ndarray, vectors: VectorSource, k: int = AT) -> np.ndarray:
    """The rows [queries, k] of the best vectors, by exact search."""

    def blocks() -> Iterator[np.ndarray]:
        with progress("Exact search, for comparison", len(vectors)) as advance:
            for start in range(0, len(vectors), _BLOCK):
                rows = np.arange(start, min(start + _BLOCK, len(vectors)))
                yield vectors.take(rows)
                advance(len(rows))

    return exact_search(queries, blocks(), k)[1]


def recall(found: np.ndarray, exact: np.ndarray) -> float:
    """The share of `exact` rows [queries, k] in `found` [queries, any], over all queries."""
    hits = [len(np.intersect1d(some, every)) for some, every in zip(found, exact, strict=True)]
    return float(np.sum(hits) / max(1, exact.size))


class Approximate(Protocol):
    """An index with adjustable search effort."""

    effort: int | None

    def efforts(self) -> list[int | None]: ...

    def search(self, queries: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]: ...


def choose_effort(index: Approximate, queries: np.ndarray, exact: np.ndarray) -> float:
    """Set the least effort that reaches the target, or the maximum, and return its recall."""
    for effort in track(index.efforts(), "Choosing how thoroughly to search"):
        index.effort = effort
        reached = recall(index.search(queries, exact.shape[1])[0], exact)
        if reached >= TARGET:
            break
    return reached


def sample_queries(vectors: VectorSource, seed: int = 0) -> np.ndarray:
    """Documents to use as queries if a data set has none: [up to 200, dim]."""
    count = min(QUERIES, len(vectors))
    return vectors.take(np.sort(np.random.default_rng(seed).choice(len(vectors), size=count, replace=False)))
