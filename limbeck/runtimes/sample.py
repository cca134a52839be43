"""Texts that runtimes are measured on: a sample of the user's own, or built-in ones."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from limbeck.data import load
from limbeck.data.by_kind import by_kind
from limbeck.data.dataset import PairData, RankingData
from limbeck.errors import LimbeckError
from limbeck.runtimes.choice import measured_source
from limbeck.runtimes.judged import Judged, judged_of

QUERIES, DOCUMENTS = 24, 96
T = TypeVar("T")
BUILT_IN = "pydocs"  # docstrings of this Python: they need no download


@dataclass(frozen=True)
class Sample:
    """Queries and documents, where they are from, and judged queries of the same set if there are any."""

    queries: list[str]
    documents: list[str]
    source: str
    judged: Judged | None = None

    def pairs(self, texts: int = 2) -> list[tuple[str, ...]]:
        """Every document with a query, in turns; as many texts as a matcher reads together."""
        count = len(self.documents)
        rows = ([self.documents[(at + number) % count] for number in range(texts - 1)] for at in range(count))
        return [(self.queries[at % len(self.queries)], *row) for at, row in enumerate(rows)]


def sample_of(source: str | None = None) -> Sample:
    """Queries and documents of a ranking set, or first and second texts of a pair set, spread over all of it.

    Judged queries are drawn only from data that somebody named: the labels of built-in texts say little of others.
    """
    data = load(source or BUILT_IN)
    queries, documents = by_kind(data, _of_ranking, _of_pairs)
    if not queries or not documents:
        raise LimbeckError(f"{source}: has no queries or no documents to measure on; give another data set")
    judged = by_kind(data, judged_of, lambda _: None) if source is not None else None
    return Sample(queries, documents, source or BUILT_IN, judged)


def sample_at_hand() -> Sample:
    """Texts of the data that the command reads, or built-in ones where these have no queries or no documents."""
    source = measured_source()
    if source is not None:
        with suppress(LimbeckError):
            return sample_of(source)
    return sample_of()


def _of_ranking(data: RankingData) -> tuple[list[str], list[str]]:
    return _spread(len(data.queries), QUERIES, data.queries.take), _spread(
        len(data.corpus), DOCUMENTS, data.corpus.take
    )


def _of_pairs(data: PairData) -> tuple[list[str], list[str]]:
    pairs = next(iter(data.splits.values()), [])
    picked = _spread(len(pairs), DOCUMENTS, lambda rows: [pairs[row].texts for row in rows])
    return [texts[0] for texts in picked][:QUERIES], [texts[1] for texts in picked]


def _spread(count: int, most: int, take: Callable[[list[int]], list[T]]) -> list[T]:
    """At most so many of `count` rows, evenly apart."""
    return take(np.unique(np.linspace(0, count - 1, min(count, most)).astype(int)).tolist()) if count else []
