"""Encodings on disk: the output of a tower for each text, computed once.

A text is identified by its content: a changed text is encoded again, an unchanged one is not, even if its id changes.
The `key` of a store contains everything that changes the vectors (weights, tokeniser, lengths, prompts, side, pooling,
dtype, code version). A store with another key is refused, and `store_path` gives every key its own directory.

    store = EncodingStore.open(store_path(root, key), key, dim=384)
    encode_with_store(store, texts, tower.encode)
    vectors = store.get(texts)                      # [texts, 384]

A text has one vector (`tokens=None`), a fixed number (`tokens=4`), or as many as it has tokens (`tokens="ragged"`).
Vectors are returned as float32 in any case. Rows are numbered in order of arrival, and the numbers never change,
so an index over a store may use row numbers.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import numpy as np

from limbeck.errors import LimbeckError, bad_input
from limbeck.files import digest
from limbeck.progress import Advance, progress
from limbeck.stores.digests import first_occurrences, locate, text_digests
from limbeck.stores.encoding_files import as_ragged, merge_shards, refuse_non_finite, write_shard
from limbeck.stores.manifest import Manifest, canonical
from limbeck.stores.precision import PRECISIONS, Precision, ReconstructionError, unpack
from limbeck.stores.ragged import Ragged, spans
from limbeck.stores.shards import Facts, Files, MappedShard, ShardDirectory, ShardedStore

KIND = "limbeck encodings"
LARGE = 2**29  # bytes; larger shards are not merged

Tokens = int | Literal["ragged"] | None
GivenVectors = np.ndarray | Ragged | Sequence[np.ndarray]


def store_path(root: str | Path, key: dict[str, Any]) -> Path:
    """The directory under `root` for this key."""
    return Path(root) / digest(canonical(key))


class EncodingStore(ShardedStore):
    """Vectors per text. The module's docstring describes the guarantees; `limbeck.stores.shards` implements them."""

    def __init__(self, path: Path, wanted: Manifest, *, any_identity: bool = False) -> None:
        self._shards = ShardDirectory(path, wanted, LARGE, merge_shards, any_identity=any_identity)
        layout = self._shards.manifest.layout
        self.path = path
        self.key: dict[str, Any] = self._shards.manifest.identity
        self.dim: int = layout["dim"]
        self.dtype: str = layout["dtype"]
        self.tokens: Tokens = layout["tokens"]
        per_text = () if self.tokens is None else (None if self.tokens == "ragged" else self.tokens,)
        self._shape: tuple[int | None, ...] = (*per_text, self.dim)

    @classmethod
    def open(
        cls, path: str | Path, key: dict[str, Any], dim: int, dtype: Precision = "float32", tokens: Tokens = None
    ) -> EncodingStore:
        """Open the store at `path`, or create it: nothing is written before the first append."""
        if dtype not in PRECISIONS:
            raise LimbeckError(f"{path}: cannot store vectors as {dtype!r}; choose one of {', '.join(PRECISIONS)}")
        layout = {"dim": dim, "dtype": dtype, "tokens": tokens}
        return cls(Path(path), Manifest(KIND, json.loads(canonical(key)), layout))

    @classmethod
    def read(cls, path: str | Path) -> EncodingStore:
        """Open an existing store for reading, with any key."""
        return cls(Path(path), Manifest(KIND, {}, {}), any_identity=True)

    @property
    def error(self) -> ReconstructionError:
        """The error of the stored precision, over all vectors; 0 for float32."""
        facts = [mapped.shard.facts for mapped in self._shards.shards if mapped.shard.facts]
        return sum(map(ReconstructionError.from_json, facts), ReconstructionError())

    def rows(self, texts: Iterable[str]) -> np.ndarray:
        """The row of each text, -1 if it is not stored: [texts] int64."""
        return self._find(text_digests(texts))

    def _find(self, digests: np.ndarray) -> np.ndarray:
        shards = self._shards.shards
        owners, rows = locate([mapped["index.npy"].array for mapped in shards], digests)
        starts = np.array([*(mapped.start for mapped in shards), 0])  # the last entry is for owner -1
        return rows + starts[owners]

    def _absent(self, digests: np.ndarray) -> np.ndarray:
        distinct = first_occurrences(digests)
        return distinct[self._find(digests[distinct]) < 0]

    def missing(self, texts: Iterable[str]) -> list[int]:
        """The positions of the texts that have no vectors yet; of equal texts, only the first."""
        return self._absent(text_digests(texts)).tolist()

    def get(self, texts: Sequence[str]) -> np.ndarray:
        """The vectors of the texts: [texts, dim], or [texts, tokens, dim]. All texts must be stored."""
        return self.take(self._rows_of_all(texts))

    def get_ragged(self, texts: Sequence[str]) -> Ragged:
        """The vectors of the texts in a ragged store. All texts must be stored."""
        return self.take_ragged(self._rows_of_all(texts))

    def _rows_of_all(self, texts: Sequence[str]) -> np.ndarray:
        rows = self.rows(texts)
        if (rows < 0).any():
            text = texts[int(np.argmin(rows))]
            problem = f"has no vectors for {int((rows < 0).sum())} of {len(texts)} texts, the first is {text[:60]!r}"
            raise bad_input(self.path, problem, "encode them first")
        return rows

    def take(self, rows: np.ndarray) -> np.ndarray:
        """The vectors of rows by number: [rows, dim], or [rows, tokens, dim]."""
        if self.tokens == "ragged":
            raise LimbeckError(f"{self.path}: has different numbers of vectors per text; use the ragged methods")
        shape = (self.dim,) if self.tokens is None else (self.tokens, self.dim)
        vectors = np.empty((len(rows), *shape), dtype=np.float32)
        for mapped, where, local in self._by_shard(rows):
            scales = mapped["scales.npy"].array[local] if self.dtype == "int8" else None
            vectors[where] = unpack(mapped["vectors.npy"].array[local], scales)
        return vectors

    def encodings(self, rows: np.ndarray) -> np.ndarray | Ragged:
        """The vectors of rows by number, in the shape of the store."""
        return self.take_ragged(rows) if self.tokens == "ragged" else self.take(rows)

    def take_ragged(self, rows: np.ndarray) -> Ragged:
        """The vectors of rows by number in a ragged store."""
        if self.tokens != "ragged":
            raise LimbeckError(f"{self.path}: has the same number of vectors for every text; use `get` or `take`")
        parts = list(self._by_shard(rows))
        lengths = np.zeros(len(rows), dtype=np.int64)
        for mapped, where, local in parts:
            offsets = mapped["offsets.npy"].array
            lengths[where] = offsets[local + 1] - offsets[local]
        starts = np.cumsum(lengths) - lengths
        vectors = np.empty((int(lengths.sum()), self.dim), dtype=np.float32)
        for mapped, where, local in parts:
            source = spans(mapped["offsets.npy"].array[local], lengths[where])
            scales = mapped["scales.npy"].array[source] if self.dtype == "int8" else None
            vectors[spans(starts[where], lengths[where])] = unpack(mapped["vectors.npy"].array[source], scales)
        return Ragged(vectors, lengths)

    def _by_shard(self, rows: np.ndarray) -> Iterator[tuple[MappedShard, np.ndarray, np.ndarray]]:
        """For each shard that has some of the rows: the shard, their positions in `rows`, their rows in the shard."""
        shards = self._shards.shards
        ends = np.array([mapped.start + mapped.rows for mapped in shards], dtype=np.int64)
        stored = int(ends[-1]) if len(ends) else 0
        if len(rows) and not 0 <= rows.min() <= rows.max() < stored:
            raise IndexError(f"{self.path}: has {stored} rows, asked for {rows.min()} to {rows.max()}")
        owners = np.searchsorted(ends, rows, side="right")
        for owner in np.unique(owners):
            where = np.flatnonzero(owners == owner)
            yield shards[owner], where, rows[where] - shards[owner].start

    def append(self, texts: Sequence[str], vectors: GivenVectors) -> int:
        """Store the vectors of texts that are not stored yet, in one step; returns how many were new.

        Vectors are [texts, dim], [texts, tokens, dim], or for a ragged store a `Ragged` or a list of [any, dim].
        """
        given = as_ragged(vectors, len(texts), self._shape)
        refuse_non_finite(given, texts, self.dtype)
        digests = text_digests(texts)
        with self.writing():
            new = self._absent(digests)
            if len(new) == 0:
                return 0
            kept = given if len(new) == len(texts) else given.take(new)

            def write(folder: Path) -> tuple[Files, Facts]:
                return write_shard(folder, digests[new], kept, self._shape, self.dtype)

            self._shards.append(len(new), write)
        return len(new)


def encode_with_store(
    store: EncodingStore,
    texts: Iterable[str],
    encode: Callable[[list[str]], GivenVectors],
    block: int = 1024,
    total: int | None = None,
    label: str = "Encoding",
) -> int:
    """Encode the distinct texts that are not stored, and return how many there were.

    Blocks are appended when they are done: a kill loses at most one block. `texts` may be a stream of `total` texts
    that is never in memory as a whole. If nothing is missing, nothing is locked. If `encode` reports progress under the
    same `label`, both appear as one task.
    """
    encoded = 0
    waiting: dict[str, None] = {}

    def flush(size: int, advance: Advance) -> int:
        batch = list(islice(waiting, size))
        stored = store.append(batch, encode(batch)) if batch else 0
        for text in batch:
            del waiting[text]
        advance(len(batch))
        return stored

    stream = iter(texts)
    known = 0  # texts stored before, reported at once, so that the remaining time only counts the others
    with progress(label, len(texts) if isinstance(texts, Sized) else total) as advance, ExitStack() as stack:
        while chunk := list(islice(stream, block)):
            missing = store.missing(chunk)
            if not missing and not encoded and not waiting:
                known += len(chunk)
                continue
            if known:
                advance(known)
                known = 0
            if missing and not encoded and not waiting:
                stack.enter_context(store.writing())
                missing = store.missing(chunk)
            before = len(waiting)
            waiting.update((chunk[at], None) for at in missing)
            advance(len(chunk) - (len(waiting) - before))  # texts that are stored or queued already
            if len(waiting) >= block:
                encoded += flush(block, advance)
        if known:
            advance(known)
        encoded += flush(block, advance)
    return encoded
