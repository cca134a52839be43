"""An immutable, columnar table of texts by id, so that ten million passages are not ten million Python strings."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import accumulate, islice
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from limbeck.data.checked import CheckedBatches, Columns
from limbeck.data.ids import build_index, candidate_rows, find_row, first_duplicate, hash_ids
from limbeck.errors import LimbeckError
from limbeck.files import digest, digest_of

SCHEMA = pa.schema([("id", pa.large_string()), ("title", pa.large_string()), ("text", pa.large_string())])
_BATCH_ROWS = 8192
_FEW = 64  # up to this many rows, taking them one by one is faster


class Ids(Sequence[str]):
    """The ids of a table in row order, converted to strings one at a time."""

    def __init__(self, texts: Texts) -> None:
        self._texts = texts

    def __len__(self) -> int:
        return len(self._texts)

    def __getitem__(self, row):  # type: ignore[no-untyped-def]
        if isinstance(row, slice):
            return self._texts.ids_at(range(*row.indices(len(self))))
        return self._texts.id_at(row + len(self) if row < 0 else row)

    def __contains__(self, value: object) -> bool:
        return value in self._texts

    def __iter__(self) -> Iterator[str]:
        return iter(self._texts)


class Texts:
    """An ordered id -> text table on Arrow batches, usually memory-mapped (`limbeck.data.cache`).

    The text of a document is its title and its text joined by one space, as in BEIR; without a title, only the text.
    `index` is the array of `limbeck.data.ids`, or a function that returns it when it is first needed. `file` is the
    file of a mapped table: another process maps it too, instead of receiving a copy.
    """

    def __init__(
        self,
        batches: Sequence[pa.RecordBatch] | CheckedBatches,
        index: np.ndarray | Callable[[], np.ndarray],
        file: Path | None = None,
    ) -> None:
        self._columns: Sequence[Columns]
        if isinstance(batches, CheckedBatches):
            self._columns, lengths = batches, batches.lengths
        else:
            filled: list[pa.RecordBatch] = [batch for batch in batches if len(batch)]
            self._columns = [(batch.column(0), batch.column(1), batch.column(2)) for batch in filled]
            lengths = [len(batch) for batch in filled]
        self._starts = [0, *accumulate(lengths)]
        self._index_or_source = index
        self._file = file

    @cached_property
    def _index(self) -> np.ndarray:
        return self._index_or_source() if callable(self._index_or_source) else self._index_or_source

    @classmethod
    def from_batches(cls, batches: Iterable[pa.RecordBatch]) -> Texts:
        """A table in memory; ids must be distinct and not empty."""
        kept = list(batches)
        for batch in kept:
            if pc.any(pc.equal(batch.column(0), "")).as_py():
                raise LimbeckError("a text has an empty id; give every text an id")
        texts = cls(kept, build_index([hash_ids(batch.column(0)) for batch in kept]))
        duplicate = texts.first_duplicate()
        if duplicate is not None:
            raise LimbeckError(f"duplicate id {texts.id_at(duplicate)!r}; give every text a different id")
        return texts

    @classmethod
    def build(cls, rows: Iterable[tuple[str, str, str]]) -> Texts:
        """A table in memory from (id, title, text)."""
        return cls.from_batches(batches_of(rows))

    @classmethod
    def from_dict(cls, texts: Mapping[str, str]) -> Texts:
        """A table in memory from id -> text."""
        return cls.build((key, "", text) for key, text in texts.items())

    def __len__(self) -> int:
        return self._starts[-1]

    def __iter__(self) -> Iterator[str]:
        for ids, _, _ in self._columns:
            for start in range(0, len(ids), _BATCH_ROWS):
                yield from ids.slice(start, _BATCH_ROWS).to_pylist()

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str) and self.row_or_none(key) is not None

    def __getitem__(self, key: str) -> str:
        return self.text_at(self.row(key))

    def __reduce__(self):  # type: ignore[no-untyped-def]
        if self._file is not None and self._file.exists():
            from limbeck.data.cache import open_texts

            return open_texts, (self._file,)
        return Texts, (self.batches(), np.asarray(self._index))

    def __repr__(self) -> str:
        return f"Texts({len(self):,})"

    @property
    def fingerprint(self) -> str:
        """A digest of the ids and their order, which define the row numbers."""
        return digest(np.ascontiguousarray(self._index).tobytes())

    @cached_property
    def content_digest(self) -> str:
        """A digest of ids, titles and texts, to identify results computed from them."""
        return digest_of(bytes(memoryview(batch.serialize())) for batch in self.batches())

    def empty(self) -> np.ndarray:
        """Which rows have only white space in title and text: [rows] bool."""
        blank = [
            [pc.equal(pc.binary_length(pc.utf8_trim_whitespace(column)), 0) for column in columns[1:]]
            for columns in self._columns
        ]
        found = [pc.and_(*both).to_numpy(zero_copy_only=False) for both in blank]
        return np.concatenate([np.zeros(0, dtype=bool), *found])

    @property
    def ids(self) -> Sequence[str]:
        """The ids in row order."""
        return Ids(self)

    def batches(self) -> list[pa.RecordBatch]:
        """The table as Arrow batches."""
        return [pa.record_batch(list(columns), schema=SCHEMA) for columns in self._columns]

    def items(self) -> Iterator[tuple[str, str]]:
        """(id, text) in row order, with one batch in memory at a time."""
        for start in range(0, len(self), _BATCH_ROWS):
            rows = range(start, min(start + _BATCH_ROWS, len(self)))
            yield from zip(self.ids_at(rows), self.take(rows), strict=True)

    def records(self) -> Iterator[tuple[str, str, str]]:
        """(id, title, text) in row order, with one batch in memory at a time."""
        for columns in self._columns:
            for start in range(0, len(columns[0]), _BATCH_ROWS):
                yield from zip(*(column.slice(start, _BATCH_ROWS).to_pylist() for column in columns), strict=True)

    def row_or_none(self, key: str) -> int | None:
        """The row of an id, or None."""
        row = find_row(self._index, key, self.id_at)
        return row if row >= 0 else None

    def row(self, key: str) -> int:
        """The row of an id."""
        row = self.row_or_none(key)
        if row is None:
            raise self._unknown(key)
        return row

    def find(self, keys: Iterable[str]) -> np.ndarray:
        """The rows of many ids, -1 for unknown ids: [n] int64."""
        wanted = _as_ids(keys)
        rows = candidate_rows(self._index, wanted)
        known = np.flatnonzero(rows >= 0)
        same = pc.equal(self._gather(0, rows[known]), wanted.take(pa.array(known)))
        for place in known[~same.to_numpy(zero_copy_only=False)]:  # these share a hash with another id
            rows[place] = find_row(self._index, wanted[int(place)].as_py(), self.id_at)
        return rows

    def rows(self, keys: Iterable[str]) -> np.ndarray:
        """The rows of many ids: [n] int64."""
        wanted = _as_ids(keys)
        rows = self.find(wanted)
        if (rows < 0).any():
            raise self._unknown(wanted[int(np.argmax(rows < 0))].as_py())
        return rows

    def id_at(self, row: int) -> str:
        """The id in a row."""
        batch, place = self._locate(row)
        return self._columns[batch][0][place].as_py()

    def record_at(self, row: int) -> tuple[str, str, str]:
        """(id, title, text) in a row."""
        batch, place = self._locate(row)
        key, title, text = (column[place].as_py() for column in self._columns[batch])
        return key, title, text

    def text_at(self, row: int) -> str:
        """Title and text in a row, joined."""
        batch, place = self._locate(row)
        _, titles, texts = self._columns[batch]
        title, text = titles[place].as_py(), texts[place].as_py()
        return f"{title} {text}" if title else text

    def title(self, key: str) -> str:
        """The title of an id, or an empty string."""
        return self.record_at(self.row(key))[1]

    def ids_at(self, rows: Iterable[int]) -> list[str]:
        """The ids in many rows."""
        wanted = _as_rows(rows)
        if len(wanted) <= _FEW:
            return [self.id_at(row) for row in wanted.tolist()]
        return self._gather(0, wanted).to_pylist()

    def take(self, rows: Iterable[int]) -> list[str]:
        """The texts in many rows, in the given order."""
        wanted = _as_rows(rows)
        if len(wanted) <= _FEW:
            return [self.text_at(row) for row in wanted.tolist()]
        return self.text_column(wanted).to_pylist()

    def text_column(self, rows: np.ndarray) -> pa.LargeStringArray:
        """The texts in many rows, as an Arrow array."""
        titles, texts = self._gather(1, rows), self._gather(2, rows)
        joined = pc.binary_join_element_wise(titles, texts, pa.scalar(" ", pa.large_string()))
        return pc.if_else(pc.equal(titles, ""), texts, joined)

    def first_duplicate(self) -> int | None:
        """The first row that repeats the id of an earlier row."""
        return first_duplicate(self._index, self.id_at)

    def _locate(self, row: int) -> tuple[int, int]:
        if not 0 <= row < self._starts[-1]:
            raise IndexError(f"row {row} of {len(self)}")
        batch = bisect_right(self._starts, row) - 1
        return batch, row - self._starts[batch]

    def _gather(self, column: int, rows: np.ndarray) -> pa.LargeStringArray:
        """One column in many rows, batch by batch: Arrow's own take would first join all batches into one."""
        if len(rows) == 0:
            return pa.array([], type=pa.large_string())
        if rows.min() < 0 or rows.max() >= len(self):
            raise IndexError(f"rows {rows.min()} to {rows.max()} of {len(self)}")
        batch_of = np.searchsorted(self._starts, rows, side="right") - 1
        order = np.argsort(batch_of, kind="stable")
        pieces = []
        for group in np.split(order, np.flatnonzero(np.diff(batch_of[order])) + 1):
            batch = int(batch_of[group[0]])
            pieces.append(self._columns[batch][column].take(pa.array(rows[group] - self._starts[batch])))
        back = np.empty(len(rows), dtype=np.int64)
        back[order] = np.arange(len(rows))
        return pa.concat_arrays(pieces).take(pa.array(back))

    def _unknown(self, key: str) -> LimbeckError:
        like = f"; ids here look like {self.id_at(0)!r}" if len(self) else "; there are none here"
        return LimbeckError(f"unknown id {key!r}{like}")


def _as_ids(keys: Iterable[str]) -> pa.LargeStringArray:
    return keys if isinstance(keys, pa.Array) else pa.array(list(keys), type=pa.large_string())


def _as_rows(rows: Iterable[int]) -> np.ndarray:
    return rows.astype(np.int64) if isinstance(rows, np.ndarray) else np.fromiter(rows, dtype=np.int64)


def batches_of(rows: Iterable[tuple[str, str, str]]) -> Iterator[pa.RecordBatch]:
    """Arrow batches from (id, title, text)."""
    source = iter(rows)
    while block := list(islice(source, _BATCH_ROWS)):
        columns = [pa.array(column, type=pa.large_string()) for column in zip(*block, strict=True)]
        yield pa.record_batch(columns, schema=SCHEMA)
