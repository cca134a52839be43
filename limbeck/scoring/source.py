"""Which pairs are to be scored: a file of them, or everything against everything, as row numbers of text tables.

A pair file names texts by id (`left`, `right`; the texts stand in files of their own), or has the texts in it
(`text_a`, `text_b`, ... as any pair file). Either becomes an array of rows on disk, [pairs, positions], and distinct
texts a table for each position. A cross product is never written out: pair p is left p // rights, right p % rights.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from limbeck.data.cache import file_state, open_texts, write_pieces, write_texts
from limbeck.data.lines import bare_suffix
from limbeck.data.pairs import texts_of
from limbeck.data.passages import load_texts
from limbeck.data.records import Record, read_records
from limbeck.data.texts import Texts, batches_of
from limbeck.errors import LimbeckError, bad_input
from limbeck.files import digest, directory_atomically
from limbeck.progress import progress
from limbeck.stores.digests import text_digests

IDS = (("left", "right"), ("left_id", "right_id"), ("query_id", "document_id"), ("query-id", "corpus-id"))
_REMEDY = "name its columns left and right (ids), or text_a and text_b (texts)"
_ID_REMEDY = "name two of them left and right, or leave --left and --right out if the texts stand in it"
_ROWS = 65536


@dataclass(frozen=True)
class Source:
    """Pairs as rows of text tables."""

    tables: list[Texts]  # one for each position
    pairs: np.ndarray | None  # [pairs, positions] int32, mapped; None for a cross product
    named: bool  # whether the tables' ids are the user's own

    def __len__(self) -> int:
        if self.pairs is not None:
            return len(self.pairs)
        return len(self.tables[0]) * len(self.tables[1])

    def rows(self, start: int, stop: int) -> np.ndarray:
        """The rows [pairs, positions] of pairs `start` to `stop`."""
        if self.pairs is not None:
            return np.asarray(self.pairs[start:stop], dtype=np.int64)
        return np.stack(np.divmod(np.arange(start, stop), len(self.tables[1])), axis=1)

    def named_rows(self) -> list[np.ndarray]:
        """The rows of each table that some pair names, ascending; a byte a text meanwhile."""
        if self.pairs is None:
            return [np.arange(len(table)) for table in self.tables]
        seen = [np.zeros(len(table), dtype=bool) for table in self.tables]
        for start in range(0, len(self.pairs), _ROWS):
            for known, column in zip(seen, self.pairs[start : start + _ROWS].T, strict=True):
                known[column] = True
        return [np.flatnonzero(known) for known in seen]


def source_state(pairs: Path | None, left: str | None, right: str | None) -> str:
    """What tells one list of pairs from another: sizes and times of the files, of a folder its files' names too."""
    return digest(*(_state(str(path)) if path is not None else "" for path in (pairs, left, right)))


def _state(name: str) -> str:
    path = Path(name)
    if path.is_file():
        return file_state(path)
    files = sorted(file for file in path.iterdir() if file.is_file()) if path.is_dir() else []
    return digest(name, *(f"{file.name} {file_state(file)}" for file in files)) if files else name


def open_source(pairs: Path | None, left: str | None, right: str | None, work: Path) -> Source:
    """The pairs of a file, or the cross product of two sets of texts; what has to be kept on disk goes to `work`."""
    if pairs is None:
        if left is None or right is None:
            raise LimbeckError("there is nothing to score; give a file of pairs, or --left and --right for all pairs")
        tables = [load_texts(left), load_texts(right)]
        for name, table in zip((left, right), tables, strict=True):
            if (empty := table.empty()).any():
                problem = f"text {table.id_at(int(empty.argmax()))!r} is empty"
                raise bad_input(name, problem, "write it, or leave it out")
        return Source(tables, None, named=True)
    named = left is not None or right is not None
    place = work / "pairs"
    if named:
        if left is None or right is None:
            raise LimbeckError("a file of ids needs the texts of both sides; give --left and --right")
        tables = [load_texts(left), load_texts(right)]
        if not place.exists():
            with directory_atomically(place) as folder:
                write_pieces(folder / "rows.npy", _id_rows(pairs, tables))
    else:
        if not place.exists():
            with directory_atomically(place) as folder:
                _write_inline(pairs, folder)
        positions = mapped_rows(place / "rows.npy").shape[1]
        tables = [_inline_texts(place / f"texts-{position}.arrow") for position in range(positions)]
    return Source(tables, mapped_rows(place / "rows.npy"), named)


def mapped_rows(file: Path) -> np.ndarray:
    """Row numbers that a job left on disk."""
    try:
        return np.load(file, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise _damaged(file, error) from error


def _inline_texts(file: Path) -> Texts:
    try:
        return open_texts(file)
    except (OSError, ValueError, EOFError) as error:  # Arrow's own are among them
        raise _damaged(file, error) from error


def _damaged(file: Path, error: Exception) -> LimbeckError:
    reason = "no such file" if isinstance(error, FileNotFoundError) else str(error).partition("\n")[0]
    return bad_input(file, f"is damaged ({reason})", f"remove {file.parent} and run the same command again")


def _id_rows(path: Path, tables: list[Texts]) -> Iterator[np.ndarray]:
    """Blocks [pairs, 2] of rows; an id that nobody knows is named with its line."""
    done, empty = 0, [table.empty() for table in tables]
    for lines, columns in _id_columns(path):
        rows = np.stack([_rows_of(table, column) for table, column in zip(tables, columns, strict=True)], axis=1)
        bad = np.flatnonzero((rows < 0).any(axis=1))
        if len(bad):
            at, side = int(bad[0]), int(rows[bad[0], 0] >= 0)
            problem = f"names {('left', 'right')[side]} text {columns[side][at].as_py()!r}, which is not there"
            raise bad_input(path, problem, "add the text, or drop the pair", lines[at])
        blank = np.stack([known[rows[:, side]] for side, known in enumerate(empty)], axis=1)
        if blank.any():
            at, side = divmod(int(blank.argmax()), 2)
            problem = f"{('left', 'right')[side]} text {columns[side][at].as_py()!r} is empty"
            raise bad_input(path, problem, "write the text, or drop the pair", lines[at])
        yield rows.astype(np.int32)
        done += len(rows)
    if not done:
        raise bad_input(path, "holds no pairs", _REMEDY)


def _rows_of(table: Texts, column: pa.LargeStringArray) -> np.ndarray:
    """The rows of ids, many of which come again and again."""
    known = column.dictionary_encode()
    return table.find(known.dictionary)[known.indices.to_numpy()]


def _id_columns(path: Path) -> Iterator[tuple[Sequence[int], list[pa.LargeStringArray]]]:
    """Blocks of lines and id columns; parquet column by column, the others row by row."""
    if bare_suffix(path) == ".parquet":
        file = _parquet(path)
        names = _id_names(path, file.schema_arrow.names)
        first = 1
        for batch in _batches(path, file, names):
            columns = [_as_ids(path, name, batch.column(name)) for name in names]
            for name, column in zip(names, columns, strict=True):
                if column.null_count:
                    at = int(np.argmax(column.is_null().to_numpy(zero_copy_only=False)))
                    raise bad_input(path, f"has no {name}", _REMEDY, first + at)
            yield range(first, first + len(batch)), columns
            first += len(batch)
        return
    records = read_records(path)
    found: tuple[str, str] | None = None
    while block := list(islice(records, _ROWS)):
        found = found or _id_names(path, list(block[0][1]))
        for number, record in block:
            if any(record.get(name) in (None, "") for name in found):
                raise bad_input(path, f"has no {' or no '.join(found)}", _REMEDY, number)
        columns = [pa.array([str(record[name]) for _, record in block], pa.large_string()) for name in found]
        yield [number for number, _ in block], columns


def _batches(path: Path, file: pq.ParquetFile, names: tuple[str, str]) -> Iterator[pa.RecordBatch]:
    if any(file.schema_arrow.names.count(name) > 1 for name in names):
        raise bad_input(path, f"has two columns of one name, {' or '.join(names)}", "keep one of them")
    try:
        yield from file.iter_batches(batch_size=_ROWS, columns=list(names))
    except (pa.ArrowException, OSError) as error:
        reason = str(error).partition("\n")[0]
        raise bad_input(path, f"is damaged ({reason})", "write it again") from error


def _as_ids(path: Path, name: str, column: pa.Array) -> pa.LargeStringArray:
    try:
        return column.cast(pa.large_string())
    except pa.ArrowException as error:
        raise bad_input(path, f"column {name!r} holds {column.type}, no ids", "write ids as strings") from error


def _id_names(path: Path, names: Iterable[str]) -> tuple[str, str]:
    there = set(names)
    found = next((pair for pair in IDS if set(pair) <= there), None)
    if found is None:
        raise bad_input(path, f"has no columns of ids, but {', '.join(sorted(there)) or 'none'}", _ID_REMEDY)
    return found


def _parquet(path: Path) -> pq.ParquetFile:
    try:
        return pq.ParquetFile(path)
    except FileNotFoundError as error:
        raise bad_input(path, "no such file", "check its name") from error
    except (pa.ArrowInvalid, OSError) as error:
        reason = str(error).partition("\n")[0]
        raise bad_input(path, f"is not a whole parquet file ({reason})", "write it again") from error


def _write_inline(path: Path, folder: Path) -> None:
    """Rows and distinct texts of a file that has the texts in it; a text is known by its content."""
    known: list[dict[bytes, int]] = []
    texts: list[list[str]] = []

    def rows() -> Iterator[np.ndarray]:
        records = read_records(path)
        with progress("Reading pairs") as advance:
            while block := list(islice(records, _ROWS)):
                if not known:
                    first = _texts(path, *block[0], 0)
                    known.extend({} for _ in first)
                    texts.extend([] for _ in first)
                found = [_texts(path, number, record, len(known)) for number, record in block]
                columns = [_known(known[at], texts[at], [row[at] for row in found]) for at in range(len(known))]
                yield np.stack(columns, axis=1).astype(np.int32)
                advance(len(block))

    write_pieces(folder / "rows.npy", rows())
    if not known:
        raise bad_input(path, "holds no pairs", _REMEDY)
    for position, some in enumerate(texts):
        numbered = ((str(row), "", text) for row, text in enumerate(some))
        write_texts(folder / f"texts-{position}.arrow", batches_of(numbered), LimbeckError)


def _texts(path: Path, number: int, record: Record, wanted: int) -> tuple[str, ...]:
    found = texts_of(record)
    if found is None and any(set(pair) <= set(record) for pair in IDS):
        raise bad_input(path, "names texts by their ids", "give their texts with --left and --right", number)
    if found is not None and any(not isinstance(text, str) for text in found):
        raise bad_input(path, "has a text that is no text", "write every text as a string", number)
    if found is None:
        raise bad_input(path, f"has the columns {', '.join(record)}", _REMEDY, number)
    if len(found) < 2:
        raise bad_input(path, f"has {len(found)} texts", "give every pair two or more", number)
    if wanted and len(found) != wanted:
        problem = f"has {len(found)} texts where the first line has {wanted}"
        raise bad_input(path, problem, "give every pair as many", number)
    empty = next((at for at, text in enumerate(found, 1) if not text.strip()), None)
    if empty is not None:
        raise bad_input(path, f"text {empty} is empty", "write every text or leave the row out", number)
    return found


def _known(known: dict[bytes, int], texts: list[str], column: list[str]) -> list[int]:
    rows = []
    for text, key in zip(column, text_digests(column), strict=True):
        row = known.setdefault(key.tobytes(), len(texts))
        if row == len(texts):
            texts.append(text)
        rows.append(row)
    return rows
