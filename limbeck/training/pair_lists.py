"""Labelled and unlabelled pairs as training lists of one document each."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from limbeck.data import Pair
from limbeck.matchers.base import Document

MANY = 1000  # a text with more pairs is not searched for common neighbours: most texts are its neighbours


class PairLists:
    """Every pair is a query with a list of one; in an n-ary task, all texts but the first are the document."""

    def __init__(self, pairs: Sequence[Pair], labels: np.ndarray, teacher: np.ndarray | None = None) -> None:
        known: dict[Document, int] = {}
        self.queries = [pair.texts[0] for pair in pairs]
        self.right = np.array([known.setdefault(document_of(pair), len(known)) for pair in pairs], dtype=np.int64)
        self.documents = list(known)
        self._labels, self._teacher = labels, teacher  # [pairs] or [pairs, classes]; NaN if unknown

    def __len__(self) -> int:
        return len(self.queries)

    def query(self, index: int) -> str:
        return self.queries[index]

    def pick(self, index: int, epoch: int) -> np.ndarray:
        return self.right[index : index + 1]

    def texts(self, rows: Sequence[int]) -> list[Document]:
        return [self.documents[row] for row in rows]

    def labels(self, index: int, rows: np.ndarray) -> np.ndarray:
        return self._labels[index : index + 1]

    def teacher(self, index: int, rows: np.ndarray) -> np.ndarray:
        return np.full(1, np.nan, dtype=np.float32) if self._teacher is None else self._teacher[index : index + 1]

    def together(self, generator: np.random.Generator) -> np.ndarray:
        """All pairs once, with pairs among the neighbours of a text next to each other."""
        return neighbours_together(*self._ends, generator)

    @cached_property
    def _ends(self) -> tuple[np.ndarray, np.ndarray]:
        """The number of each pair's first text and of its document; the same text has the same number on both sides."""
        known: dict[Document, int] = {}
        documents = np.array([known.setdefault(document, len(known)) for document in self.documents], dtype=np.int64)
        queries = [known.setdefault(query, len(known)) for query in self.queries]
        return np.array(queries, dtype=np.int64), documents[self.right]

    def everything(self) -> tuple[list[str], list[Document]]:
        return list(dict.fromkeys(self.queries)), self.documents


def neighbours_together(left: np.ndarray, right: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """An order of the pairs `left`, `right` of text numbers in which texts recur soon: all pairs among a text and its
    neighbours, then those of another text, with texts in random order. [pairs]

    Neighbours are often neighbours of each other: 31 texts may have 230 pairs. For these the encoder reads 31 texts,
    while for the same number of random pairs it would read twice as many texts as there are pairs.
    """
    ends = np.concatenate([left, right])
    by_text = np.argsort(ends, kind="stable")  # both ends of every pair, sorted by text
    counts = np.bincount(ends)
    bounds = np.append(0, np.cumsum(counts))
    pair_of, other = by_text % max(1, len(left)), np.concatenate([right, left])[by_text]
    waiting, inside = np.ones(len(left), dtype=bool), np.zeros(len(counts), dtype=bool)
    order = [np.zeros(0, dtype=np.int64)]
    for text in generator.permutation(np.flatnonzero(counts)):
        own = slice(bounds[text], bounds[text + 1])
        if not waiting[pair_of[own]].any():
            continue
        near = np.unique(np.append(other[own], text))
        inside[near] = True
        known = near[(counts[near] <= MANY) | (near == text)]
        places = np.concatenate([np.arange(bounds[one], bounds[one + 1]) for one in known])
        found = np.unique(pair_of[places[inside[other[places]]]])
        found = found[waiting[found]]
        inside[near] = False
        waiting[found] = False
        order.append(generator.permutation(found))
    return np.concatenate(order)


def document_of(pair: Pair) -> Document:
    """All texts but the first."""
    return pair.texts[1] if len(pair.texts) == 2 else pair.texts[1:]


def label_array(pairs: Sequence[Pair]) -> np.ndarray:
    """Labels [pairs], or soft labels [pairs, classes]; NaN if there is none."""
    width = next((len(pair.label) for pair in pairs if isinstance(pair.label, tuple)), None)
    unknown: float | tuple[float, ...] = float("nan") if width is None else (float("nan"),) * width
    return np.array([unknown if pair.label is None else pair.label for pair in pairs], dtype=np.float32)
