"""The passages of an index on disk: one segment from the build, and one more for each addition.

Rows are numbered through the segments and keep their numbers until the index is compacted. A deleted passage keeps its
row but is never found.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from limbeck.data.cache import open_texts, write_texts
from limbeck.data.texts import Texts
from limbeck.errors import LimbeckError
from limbeck.search.dense import DenseIndex
from limbeck.search.filters import Condition, matching
from limbeck.search.manifest import IndexManifest, Segment


@dataclass(frozen=True)
class OpenSegment:
    """A segment, memory-mapped.

    `windows` [vectors, 3] gives the row and the characters of each vector; None means that vector i is row i. `keys`
    [vectors] are the vectors' keys in Milvus.
    """

    texts: Texts
    fields: pa.Table | None
    dense: DenseIndex | None
    windows: np.ndarray | None
    keys: np.ndarray | None


def write_segment(
    folder: Path,
    texts: Texts,
    fields: pa.Table | None,
    dense: DenseIndex | None = None,
    windows: np.ndarray | None = None,
    keys: np.ndarray | None = None,
) -> None:
    """Write the files of a segment into a folder that is still being written."""
    write_texts(folder / "texts.arrow", texts.batches(), lambda key: LimbeckError(f"duplicate passage id {key!r}"))
    if fields is not None:
        with pa.OSFile(str(folder / "fields.arrow"), "wb") as sink, pa.ipc.new_file(sink, fields.schema) as writer:
            writer.write_table(fields)
    if dense is not None:
        dense.save(folder / "dense.faiss")
    for name, array in (("windows.npy", windows), ("keys.npy", keys)):
        if array is not None:
            np.save(folder / name, array, allow_pickle=False)


def open_segment(folder: Path, segment: Segment) -> OpenSegment:
    """Map a segment whose files were checked."""
    dense = folder / "dense.faiss"
    return OpenSegment(
        open_texts(folder / "texts.arrow"),
        _table(folder / "fields.arrow"),
        DenseIndex.open(dense, str(segment.kind), segment.effort) if dense.exists() else None,
        _array(folder / "windows.npy"),
        _array(folder / "keys.npy"),
    )


def _table(path: Path) -> pa.Table | None:
    return pa.ipc.open_file(pa.memory_map(str(path))).read_all() if path.exists() else None


def _array(path: Path) -> np.ndarray | None:
    return np.load(path, mmap_mode="r", allow_pickle=False).view(np.ndarray) if path.exists() else None


class Collection:
    """All segments as one table of passages. `alive` [rows] bool is False for deleted passages."""

    def __init__(self, segments: Sequence[OpenSegment], deleted: np.ndarray | None = None) -> None:
        self.segments = list(segments)
        self._starts = np.cumsum([0, *(len(segment.texts) for segment in segments)])
        self.alive = np.ones(len(self), dtype=bool) if deleted is None else ~deleted

    def __len__(self) -> int:
        return int(self._starts[-1])

    @cached_property
    def rows(self) -> np.ndarray:
        """The rows of all passages that are not deleted."""
        return np.flatnonzero(self.alive)

    @property
    def field_names(self) -> list[str]:
        tables = [segment.fields for segment in self.segments if segment.fields is not None]
        return list(dict.fromkeys(name for table in tables for name in table.column_names))

    def record_at(self, row: int) -> tuple[str, str, str]:
        """(id, title, text) in a row."""
        segment, place = self._locate(row)
        return segment.texts.record_at(place)

    def fields_at(self, row: int) -> dict[str, Any]:
        """The fields of the passage in a row."""
        segment, place = self._locate(row)
        if segment.fields is None:
            return {}
        (values,) = segment.fields.slice(place, 1).to_pylist()
        return {name: value for name, value in values.items() if value is not None}

    def text_at(self, row: int) -> str:
        """Title and text in a row, joined."""
        segment, place = self._locate(row)
        return segment.texts.text_at(place)

    def take(self, rows: Iterable[int]) -> list[str]:
        """The texts in many rows."""
        return self._gathered(rows, Texts.take)

    def ids_at(self, rows: Iterable[int]) -> list[str]:
        """The ids in many rows."""
        return self._gathered(rows, Texts.ids_at)

    def find(self, ids: Sequence[str]) -> np.ndarray:
        """The rows of ids, -1 for unknown or deleted passages: [ids] int64."""
        found = np.full(len(ids), -1, dtype=np.int64)
        for start, segment in zip(self._starts[:-1], self.segments, strict=True):
            rows = segment.texts.find(ids)
            here = rows >= 0
            here[here] = self.alive[rows[here] + start]
            found[here] = rows[here] + start
        return found

    def matching(self, conditions: Sequence[Condition]) -> np.ndarray:
        """Which rows meet all conditions and are not deleted: [rows] bool."""
        parts = [matching(segment.fields, len(segment.texts), conditions) for segment in self.segments]
        return np.concatenate(parts) & self.alive

    def live(self) -> LiveCorpus:
        """The passages that are not deleted, renumbered from 0."""
        return LiveCorpus(self)

    def _gathered(self, rows: Iterable[int], read: Callable[[Texts, np.ndarray], list[str]]) -> list[str]:
        """Apply `read`, which handles rows of one segment, to any rows; results are in the given order."""
        wanted = np.asarray(rows if isinstance(rows, np.ndarray) else list(rows), dtype=np.int64)
        if len(self.segments) == 1:
            return read(self.segments[0].texts, wanted)
        found = np.empty(len(wanted), dtype=object)
        owners = np.searchsorted(self._starts, wanted, side="right") - 1
        for owner in np.unique(owners):
            where = np.flatnonzero(owners == owner)
            found[where] = read(self.segments[owner].texts, wanted[where] - self._starts[owner])
        return found.tolist()

    def _locate(self, row: int) -> tuple[OpenSegment, int]:
        number = int(np.searchsorted(self._starts, row, side="right")) - 1
        return self.segments[number], row - int(self._starts[number])


class LiveCorpus:
    """The passages that are not deleted, as a corpus, for computations over all of them."""

    def __init__(self, collection: Collection) -> None:
        self._collection = collection

    def __len__(self) -> int:
        return len(self._collection.rows)

    def take(self, rows: Iterable[int]) -> list[str]:
        return self._collection.take(self._collection.rows[list(rows)])

    def ids_at(self, rows: Iterable[int]) -> list[str]:
        return self._collection.ids_at(self._collection.rows[list(rows)])


def open_collection(folder: Path, manifest: IndexManifest) -> Collection:
    """The passages of a manifest, including deleted ones."""
    opened = [open_segment(folder / "segments" / segment.name, segment) for segment in manifest.segments]
    deleted = manifest.deleted_part
    return Collection(opened, np.load(folder / "deleted" / deleted) if deleted else None)
