"""Labelled and unlabelled pairs as training lists of one document each."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from limbeck.data import Pair
from limbeck.matchers.base import Document


class PairLists:
    """Every pair is a query with a list of one; of an n-ary task, the second and further texts are the document."""

    def __init__(self, pairs: Sequence[Pair], labels: np.ndarray, teacher: np.ndarray | None = None) -> None:
        known: dict[Document, int] = {}
        self.queries = [pair.texts[0] for pair in pairs]
        self.right = np.array([known.setdefault(document_of(pair), len(known)) for pair in pairs], dtype=np.int64)
        self.documents = list(known)
        self._labels, self._teacher = labels, teacher  # [pairs] or [pairs, classes]; NaN where unknown

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

    def everything(self) -> tuple[list[str], list[Document]]:
        return list(dict.fromkeys(self.queries)), self.documents


def document_of(pair: Pair) -> Document:
    """All texts but the first."""
    return pair.texts[1] if len(pair.texts) == 2 else pair.texts[1:]


def label_array(pairs: Sequence[Pair]) -> np.ndarray:
    """Labels [pairs], or soft labels [pairs, classes]; NaN where there is none."""
    width = next((len(pair.label) for pair in pairs if isinstance(pair.label, tuple)), None)
    unknown: float | tuple[float, ...] = float("nan") if width is None else (float("nan"),) * width
    return np.array([unknown if pair.label is None else pair.label for pair in pairs], dtype=np.float32)
