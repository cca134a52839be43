"""Training examples: each query with a list of documents, their labels, and their teacher scores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Protocol

import numpy as np

from limbeck.data import Texts
from limbeck.errors import LimbeckError
from limbeck.matchers.base import Document


class TrainingLists(Protocol):
    """The source of batches. Documents are rows of a table of distinct texts."""

    def __len__(self) -> int: ...

    def query(self, index: int) -> str: ...

    def pick(self, index: int, epoch: int) -> np.ndarray:
        """The document rows in the list of query `index` in this epoch."""
        ...

    def texts(self, rows: Sequence[int]) -> Sequence[Document]: ...

    def labels(self, index: int, rows: np.ndarray) -> np.ndarray:
        """Labels of any documents for query `index`; NaN if unknown."""
        ...

    def teacher(self, index: int, rows: np.ndarray) -> np.ndarray:
        """Stored teacher scores of any documents for query `index`; NaN if there is none."""
        ...

    def together(self, generator: np.random.Generator) -> np.ndarray:
        """All examples once, with those that share texts next to each other."""
        ...

    def everything(self) -> tuple[list[str], Sequence[Document]]:
        """All distinct queries and documents that any epoch may use."""
        ...


@dataclass
class RankedQuery:
    """One training query: judged positives, a pool of other candidates, and stored teacher scores."""

    id: str
    positives: dict[int, float]  # document row -> grade
    pool: np.ndarray  # document rows
    labelled: bool = True
    scored: np.ndarray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))  # document rows, ascending
    scores: np.ndarray = field(default_factory=lambda: np.zeros(0, dtype=np.float32))  # their teacher scores


def leave_out_likely_positives(queries: Sequence[RankedQuery], margin: float) -> int:
    """Drop candidates that the teacher does not score below the best positive by `margin`; returns how many.

    Queries without a scored positive, and candidates without a score, are not changed.
    """
    dropped = 0
    for query in queries:
        known = dict(zip(query.scored.tolist(), query.scores.tolist(), strict=True))
        best = max((known[row] for row in query.positives if row in known), default=None)
        if best is None:
            continue
        keep = np.array([known.get(row, -np.inf) < best - margin for row in query.pool.tolist()], dtype=bool)
        dropped += int((~keep).sum())
        query.pool = query.pool[keep]
    return dropped


class TextLists:
    """Texts without lists, for objectives on embeddings: each query or document is one example.

    Examples are numbered from the first query to the last document.
    """

    def __init__(self, queries: Sequence[str], documents: Sequence[str] = ()) -> None:
        self.queries, self.documents = list(queries), list(documents)
        if not len(self):
            raise LimbeckError("there are no texts to train on; check the queries of the training split")

    def __len__(self) -> int:
        return len(self.queries) + len(self.documents)

    def of(self, indices: Sequence[int]) -> tuple[list[str], list[str]]:
        """The queries and the documents among some examples."""
        first = len(self.queries)
        queries = [self.queries[index] for index in indices if index < first]
        return queries, [self.documents[index - first] for index in indices if index >= first]

    def together(self, generator: np.random.Generator) -> np.ndarray:
        return generator.permutation(len(self))  # a text is in one example

    def everything(self) -> tuple[list[str], Sequence[Document]]:
        return list(dict.fromkeys(self.queries)), list(dict.fromkeys(self.documents))


def draw_rows(counts: Sequence[int], most: int | None, seed: int) -> list[np.ndarray]:
    """Rows of several tables, `most` in total, with equal probability for each row; all rows if None.

    A stage with fewer steps than texts uses only these, and a teacher embeds no others.
    """
    total = sum(counts)
    chosen = np.arange(total)
    if most is not None and most < total:
        chosen = np.sort(np.random.default_rng(seed).choice(total, most, replace=False))
    starts = np.cumsum([0, *counts])
    return [chosen[(chosen >= low) & (chosen < high)] - low for low, high in pairwise(starts.tolist())]


Examples = TrainingLists | TextLists


class RankingLists:
    """Lists drawn from a ranking set: positives always, the rest from the query's pool."""

    def __init__(
        self, corpus: Texts, queries: Texts, ranked: Sequence[RankedQuery], size: int, pick: str, seed: int
    ) -> None:
        self.corpus, self.queries = corpus, queries
        self.ranked = [query for query in ranked if len(query.pool) + len(query.positives) > 0]
        if not self.ranked:
            raise LimbeckError("no training query has any candidate document; check the qrels and lists.negatives")
        self.size, self.by_teacher, self.seed = size, pick == "top", seed

    def __len__(self) -> int:
        return len(self.ranked)

    def query(self, index: int) -> str:
        return self.queries[self.ranked[index].id]

    def pick(self, index: int, epoch: int) -> np.ndarray:
        query = self.ranked[index]
        generator = np.random.default_rng([self.seed, epoch, index])
        positives = np.fromiter(query.positives, dtype=np.int64, count=len(query.positives))
        room = self.size - 1 if len(query.pool) else self.size
        if len(positives) > room:
            positives = generator.choice(positives, size=max(room, 1), replace=False)
        wanted = min(self.size - len(positives), len(query.pool))
        if self.by_teacher:
            scores = self.teacher(index, query.pool)
            order = np.argsort(-np.nan_to_num(scores, nan=-np.inf), kind="stable")
            negatives = query.pool[order[:wanted]]
        else:
            negatives = generator.choice(query.pool, size=wanted, replace=False) if wanted > 0 else query.pool[:0]
        return np.concatenate([positives, negatives])

    def texts(self, rows: Sequence[int]) -> list[str]:
        return self.corpus.take(rows)

    def together(self, generator: np.random.Generator) -> np.ndarray:
        return generator.permutation(len(self))  # each query has one list; its documents are drawn later

    def everything(self) -> tuple[list[str], Sequence[Document]]:
        rows = [[*query.positives, *query.pool.tolist()] for query in self.ranked]
        distinct = np.unique(np.concatenate([np.array(some, dtype=np.int64) for some in rows]))
        return [self.queries[query.id] for query in self.ranked], self.corpus.take(distinct)

    def labels(self, index: int, rows: np.ndarray) -> np.ndarray:
        """An unjudged document of a labelled query counts as not relevant, as is usual."""
        query = self.ranked[index]
        if not query.labelled:
            return np.full(len(rows), np.nan, dtype=np.float32)
        return np.array([query.positives.get(int(row), 0.0) for row in rows], dtype=np.float32)

    def teacher(self, index: int, rows: np.ndarray) -> np.ndarray:
        query = self.ranked[index]
        if not len(query.scored):
            return np.full(len(rows), np.nan, dtype=np.float32)
        found = np.minimum(np.searchsorted(query.scored, rows), len(query.scored) - 1)
        return np.where(query.scored[found] == rows, query.scores[found], np.nan).astype(np.float32)
