"""The vectors of all segments as one index."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from limbeck.search.dense import DenseIndex, require_dim


class VectorIndex(Protocol):
    """The backend of vector search: faiss on this machine, or Milvus."""

    def __len__(self) -> int: ...

    @property
    def dim(self) -> int: ...

    def search(self, queries: np.ndarray, k: int, allowed: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Rows and scores [queries, up to k], best first; -1 and -inf if there are fewer."""

    def take(self, rows: np.ndarray) -> np.ndarray:
        """The vectors of rows, [rows, dim]."""


class Segmented:
    """Several faiss indexes in sequence; rows are numbered through them."""

    def __init__(self, parts: Sequence[DenseIndex]) -> None:
        self.parts = list(parts)
        self._starts = np.cumsum([0, *(len(part) for part in parts)])

    def __len__(self) -> int:
        return int(self._starts[-1])

    @property
    def dim(self) -> int:
        return self.parts[0].dim

    def search(self, queries: np.ndarray, k: int, allowed: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
        queries = require_dim(queries, self.dim)
        if len(self.parts) == 1:
            return self.parts[0].search(queries, k, allowed)
        found = []
        for part, start, end in zip(self.parts, self._starts[:-1], self._starts[1:], strict=True):
            rows, scores = part.search(queries, k, None if allowed is None else allowed[start:end])
            found.append((np.where(rows < 0, -1, rows + start), scores))
        rows, scores = (np.concatenate(columns, axis=1) for columns in zip(*found, strict=True))
        order = np.lexsort((rows, -scores), axis=1)[:, :k]
        return np.take_along_axis(rows, order, axis=1), np.take_along_axis(scores, order, axis=1)

    def take(self, rows: np.ndarray) -> np.ndarray:
        vectors = np.empty((len(rows), self.dim), dtype=np.float32)
        owners = np.searchsorted(self._starts, rows, side="right") - 1
        for owner in np.unique(owners):
            where = np.flatnonzero(owners == owner)
            vectors[where] = self.parts[owner].take(rows[where] - self._starts[owner])
        return vectors


class Chosen:
    """Some vectors of an index, in the order of `rows`, to build another one."""

    def __init__(self, index: VectorIndex, rows: np.ndarray) -> None:
        self._index, self._rows = index, rows

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def dim(self) -> int:
        return self._index.dim

    def take(self, rows: np.ndarray) -> np.ndarray:
        return self._index.take(self._rows[rows])
