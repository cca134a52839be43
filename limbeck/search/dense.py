"""Vector search with faiss: one interface, four kinds of index.

| kind | bytes per vector | search | for |
|---|---|---|---|
| flat | 4 dim | exact inner product with every vector | the reference; up to 50,000 vectors |
| hnsw | 4 dim + 270 | a walk through a graph of neighbours | up to 1,000,000 |
| ivf-sq8 | dim + 8 | 8 bits a number, the nearest lists only | beyond |
| sq8 | dim | 8 bits a number, every vector | memory matters more than time |

`auto` takes the kind from the last column. A graph is built with one thread, because several threads would give a
different graph each time. The search effort (how much of the graph, or how many lists, a search visits) is chosen at
build time: the least effort that finds 95% of the exact top 10 (`limbeck.search.recall`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import faiss as faiss_module
import numpy as np

from limbeck.errors import LimbeckError, bad_input, did_you_mean
from limbeck.progress import progress, say
from limbeck.search.exact import exact_search

faiss: Any = faiss_module  # its type stubs are incomplete

KINDS = ("flat", "hnsw", "ivf-sq8", "sq8")
FLAT_UP_TO, HNSW_UP_TO = 50_000, 1_000_000
EXHAUSTIVE = ("flat", "sq8")  # every vector is compared
NEIGHBOURS, CONSTRUCTION = 32, 128
BREADTHS = (32, 64, 128, 256, 512)  # breadth of a search in the graph
FEW = 20_000  # up to this many vectors, an exact comparison is faster than an index

_BLOCK = 8192
_TRAINING = {"sq8": 100_000}
_ANNOUNCED = 50_000  # number of vectors from which training is slow enough to announce


class VectorSource(Protocol):
    """Numbered vectors from any source."""

    def __len__(self) -> int: ...

    @property
    def dim(self) -> int: ...

    def take(self, rows: np.ndarray) -> np.ndarray:
        """[rows, dim] float32."""


def choose_kind(kind: str, vectors: int) -> str:
    """The kind of index; `auto` chooses by the number of vectors."""
    if kind == "auto":
        return "flat" if vectors <= FLAT_UP_TO else "hnsw" if vectors <= HNSW_UP_TO else "ivf-sq8"
    if kind not in KINDS:
        raise LimbeckError(f"unknown kind of index {kind!r}; {did_you_mean(kind, ['auto', *KINDS])}")
    return kind


class DenseIndex:
    """A faiss index; rows are numbered in the order in which they were added.

    `effort` is HNSW's search breadth, or the number of inverted lists to read; the other kinds have none.
    """

    def __init__(self, index: Any, kind: str, effort: int | None = None) -> None:
        self.index, self.kind, self.effort = index, kind, effort

    def __len__(self) -> int:
        return int(self.index.ntotal)

    @property
    def dim(self) -> int:
        return int(self.index.d)

    def search(self, queries: np.ndarray, k: int, allowed: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
        """The k best rows for each query and their scores, [queries, up to k], best first, equal scores by row.

        `allowed` [rows] bool excludes rows. If there are fewer than k, the row is -1 and the score -inf.
        """
        queries = require_dim(queries, self.dim)
        known = len(self) if allowed is None else int(np.count_nonzero(allowed))
        allowed = None if known == len(self) else allowed
        k = min(k, known)
        if k == 0 or not len(queries):
            return np.zeros((len(queries), 0), dtype=np.int64), np.zeros((len(queries), 0), dtype=np.float32)
        if allowed is not None and known <= min(FEW, len(self) // 2) and self.kind not in EXHAUSTIVE:
            rows = np.flatnonzero(allowed)
            scores, places = exact_search(queries, [self.take(rows)], k)
            return rows[places], scores
        chosen = self._parameters(allowed)
        if self.kind in EXHAUSTIVE:
            return self._exhaustive(queries, k, known, chosen)
        return self._ordered(queries, k, chosen)

    def efforts(self) -> list[int | None]:
        """The possible search efforts, ascending."""
        if self.kind == "hnsw":
            return list(BREADTHS)
        return rising_lists(int(self.index.nlist)) if self.kind == "ivf-sq8" else [None]

    def take(self, rows: np.ndarray) -> np.ndarray:
        """The vectors of rows, [rows, dim]: as added, or rounded to 8 bits."""
        if self.kind == "ivf-sq8":
            self.index.make_direct_map()
        return self.index.reconstruct_batch(np.ascontiguousarray(rows, dtype=np.int64))

    def save(self, path: Path) -> None:
        faiss.write_index(self.index, str(path))

    @classmethod
    def open(cls, path: Path, kind: str, effort: int | None = None) -> DenseIndex:
        """Map a saved index into memory."""
        how = faiss.IO_FLAG_MMAP if kind == "ivf-sq8" else faiss.IO_FLAG_MMAP_IFC
        try:
            return cls(faiss.read_index(str(path), how | faiss.IO_FLAG_READ_ONLY), kind, effort)
        except RuntimeError as error:
            reason = str(error).strip().splitlines()[-1][:100]
            raise bad_input(path, f"is not a faiss index ({reason})", "build the index again") from error

    def _ordered(self, queries: np.ndarray, k: int, chosen: Any) -> tuple[np.ndarray, np.ndarray]:
        scores, rows = self.index.search(queries, k, params=chosen)
        scores[rows < 0] = -np.inf
        order = np.lexsort((rows, -scores), axis=1)
        return np.take_along_axis(rows, order, axis=1), np.take_along_axis(scores, order, axis=1)

    def _exhaustive(self, queries: np.ndarray, k: int, known: int, chosen: Any) -> tuple[np.ndarray, np.ndarray]:
        """Faiss keeps any of the rows that tie for the last place: search further until the order is clear."""
        wide = min(known, k + 1)
        rows, scores = self._ordered(queries, wide, chosen)
        tied = np.flatnonzero(scores[:, -1] == scores[:, k - 1]) if wide > k else np.zeros(0, dtype=np.int64)
        while len(tied):
            wide = min(known, 4 * wide)
            more, found = self._ordered(queries[tied], wide, chosen)
            rows[tied, :k], scores[tied, :k] = more[:, :k], found[:, :k]
            tied = tied[found[:, -1] == found[:, k - 1]] if wide < known else tied[:0]
        return rows[:, :k], scores[:, :k]

    def _parameters(self, allowed: np.ndarray | None) -> Any:
        chosen: dict[str, Any] = {}
        if allowed is not None:
            chosen["sel"] = faiss.IDSelectorBitmap(np.packbits(allowed, bitorder="little"))
        if self.kind == "hnsw":
            return faiss.SearchParametersHNSW(efSearch=self.effort or 64, **chosen)
        if self.kind == "ivf-sq8":
            return faiss.SearchParametersIVF(nprobe=self.effort or 8, **chosen)
        return faiss.SearchParameters(**chosen) if chosen else None


def build_dense(kind: str, vectors: VectorSource, seed: int = 0) -> DenseIndex:
    """Index all vectors, with one block at a time in memory."""
    count, dim = len(vectors), vectors.dim
    if not count:
        raise LimbeckError("there are no vectors to index; check that the corpus has passages")
    lists = list_count(count)
    index = _empty(kind, dim, lists, seed)
    if not index.is_trained:
        most = 64 * lists if kind == "ivf-sq8" else _TRAINING[kind]
        sample = np.random.default_rng(seed).choice(count, size=min(count, most), replace=False)
        if len(sample) > _ANNOUNCED:
            say(f"Training the {kind} index on {len(sample):,} vectors: this may take minutes, without progress")
        with progress(f"Training the {kind} index"):
            index.train(vectors.take(np.sort(sample)))
    fill(index, kind, vectors)
    return DenseIndex(index, kind)


def list_count(vectors: int) -> int:
    """The number of inverted lists for so many vectors; faiss needs 39 vectors to train each list."""
    return max(1, min(int(4 * vectors**0.5), vectors // 39))


def rising_lists(lists: int) -> list[int | None]:
    """The possible numbers of inverted lists to read: 2, 4, 8, ... all."""
    return [*(2**power for power in range(1, lists.bit_length()) if 2**power < lists), lists]


def fill(index: Any, kind: str, vectors: VectorSource) -> None:
    """Add vectors to a trained index."""
    with progress(f"Building the {kind} index", len(vectors)) as advance, _threads(1 if kind == "hnsw" else None):
        step = _BLOCK if kind != "hnsw" else 512
        for start in range(0, len(vectors), step):
            rows = np.arange(start, min(start + step, len(vectors)))
            index.add(np.ascontiguousarray(vectors.take(rows), dtype=np.float32))
            advance(len(rows))


def emptied(path: Path, kind: str, dim: int) -> Any:
    """A faiss index like the saved one but without vectors; learnt parts (lists, 8-bit ranges) are kept."""
    if kind in ("flat", "hnsw"):
        return _empty(kind, dim, 1, 0)
    copy = faiss.read_index(str(path))
    copy.reset()
    return copy


def require_dim(queries: np.ndarray, dim: int) -> np.ndarray:
    """Query vectors [n, dim] in the form for faiss; invalid ones are refused."""
    queries = np.ascontiguousarray(queries, dtype=np.float32)
    if queries.ndim != 2 or queries.shape[1] != dim:
        problem = f"the query vectors have shape {list(queries.shape)}, the index has vectors of {dim} numbers"
        raise LimbeckError(f"{problem}; use the model that it was built with")
    if not np.isfinite(queries).all():
        raise LimbeckError("a query vector is not finite: the model diverged or is damaged; use another model")
    return queries


def _empty(kind: str, dim: int, lists: int, seed: int) -> Any:
    inner = faiss.METRIC_INNER_PRODUCT
    if kind == "flat":
        return faiss.IndexFlatIP(dim)
    if kind == "sq8":
        return faiss.IndexScalarQuantizer(dim, faiss.ScalarQuantizer.QT_8bit, inner)
    if kind == "hnsw":
        index = faiss.IndexHNSWFlat(dim, NEIGHBOURS, inner)
        index.hnsw.efConstruction = CONSTRUCTION
        return index
    index = faiss.IndexIVFScalarQuantizer(faiss.IndexFlatIP(dim), dim, lists, faiss.ScalarQuantizer.QT_8bit, inner)
    index.cp.seed = seed + 1
    return index


@contextmanager
def _threads(count: int | None) -> Iterator[None]:
    before = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(count or before)
    try:
        yield
    finally:
        faiss.omp_set_num_threads(before)
