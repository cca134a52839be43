"""Texts that runtimes are measured on: a sample of the user's own, or built-in ones."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import numpy as np

from limbeck.data import load
from limbeck.data.by_kind import by_kind
from limbeck.data.dataset import PairData, RankingData, Texts
from limbeck.data.passages import load_texts
from limbeck.data.queries import read_queries
from limbeck.errors import LimbeckError
from limbeck.runtimes.choice import measured_source
from limbeck.runtimes.judged import Judged, judged_of

QUERIES, DOCUMENTS = 24, 96
WORDS = 8  # of a text that stands for a query
T = TypeVar("T")
BUILT_IN = "pydocs"  # docstrings of this Python: they need no download


@dataclass(frozen=True)
class Sample:
    """Queries and documents, where they are from, and, if the same set has them, judged queries and pairs."""

    queries: list[str]
    documents: list[str]
    source: str
    judged: Judged | None = None
    paired: list[tuple[str, ...]] = field(default_factory=list)  # as they are in the data

    def pairs(self, texts: int = 2) -> list[tuple[str, ...]]:
        """Pairs of the data, or else every document with a query, in turns; as many texts as a matcher reads."""
        if self.paired and len(self.paired[0]) == texts:
            return self.paired
        count = len(self.documents)
        rows = ([self.documents[(at + number) % count] for number in range(texts - 1)] for at in range(count))
        return [(self.queries[at % len(self.queries)], *row) for at, row in enumerate(rows)]


def sample_of(source: str | None = None) -> Sample:
    """Queries and documents of a ranking set, or pairs of a pair set, spread over all of it; or texts of a file, whose
    first words stand for queries.

    Judged queries are drawn only from data that somebody named: the labels of built-in texts say little of others.
    """
    name = source or BUILT_IN
    try:
        data = load(name, needs_queries=False)
    except LimbeckError:
        texts = _of_file(name) if Path(name).expanduser().is_file() else None
        if texts is None:
            raise
        return texts
    found = by_kind(data, lambda own: _of_ranking(own, name, source is not None), lambda own: _of_pairs(own, name))
    if not found.queries or not found.documents:
        raise LimbeckError(f"{name}: has no texts to measure on; give another data set")
    return found


def sample_at_hand() -> Sample:
    """Texts of the data that the command reads, or built-in ones if these have none."""
    source = measured_source()
    if source is not None:
        with suppress(LimbeckError):
            return sample_of(source)
    return sample_of()


def _of_ranking(data: RankingData, name: str, judged: bool) -> Sample:
    documents = _spread(len(data.corpus), DOCUMENTS, data.corpus.take)
    queries = _spread(len(data.queries), QUERIES, data.queries.take) or _first_words(documents)
    return Sample(queries, documents, name, judged_of(data) if judged else None)


def _of_pairs(data: PairData, name: str) -> Sample:
    pairs = next(iter(data.splits.values()), [])
    picked = _spread(len(pairs), DOCUMENTS, lambda rows: [pairs[row].texts for row in rows])
    queries = _spread(len(picked), QUERIES, lambda rows: [picked[row][0] for row in rows])
    return Sample(queries, [texts[1] for texts in picked], name, paired=picked)


def _of_file(name: str) -> Sample | None:
    """A sample of a file of texts; None if it is something else."""
    for read in (load_texts, read_queries):
        with suppress(LimbeckError):
            texts: Texts = read(name)
            documents = [text for text in _spread(len(texts), DOCUMENTS, texts.take) if text.strip()]
            return Sample(_first_words(documents), documents, name) if documents else None
    return None


def _first_words(documents: list[str]) -> list[str]:
    return [" ".join(text.split()[:WORDS]) for text in documents[:QUERIES]]


def _spread(count: int, most: int, take: Callable[[list[int]], list[T]]) -> list[T]:
    """At most so many of `count` rows, evenly apart."""
    return take(np.unique(np.linspace(0, count - 1, min(count, most)).astype(int)).tolist()) if count else []
