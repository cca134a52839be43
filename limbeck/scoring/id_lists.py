"""A list of pairs of ids: blocks of rows in the tables that contain the texts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from limbeck.data.lines import bare_suffix
from limbeck.data.records import read_records
from limbeck.data.texts import Texts
from limbeck.errors import bad_input
from limbeck.scoring.inline import IDS, REMEDY, require_characters

_ID_REMEDY = "name two of them left and right, or leave --left and --right out if the list contains the texts"
_ROWS = 65536


def id_rows(path: Path, tables: list[Texts]) -> Iterator[np.ndarray]:
    """Blocks [pairs, 2] of rows; an unknown id raises an error with its line."""
    done, empty = 0, [table.empty() for table in tables]
    for lines, columns in _id_columns(path):
        rows = np.stack([_rows_of(table, column) for table, column in zip(tables, columns, strict=True)], axis=1)
        bad = np.flatnonzero((rows < 0).any(axis=1))
        if len(bad):
            at, side = int(bad[0]), int(rows[bad[0], 0] >= 0)
            problem = f"names {('left', 'right')[side]} text {columns[side][at].as_py()!r}, which does not exist"
            raise bad_input(path, problem, "add the text, or remove the pair", lines[at])
        blank = np.stack([known[rows[:, side]] for side, known in enumerate(empty)], axis=1)
        if blank.any():
            at, side = divmod(int(blank.argmax()), 2)
            problem = f"{('left', 'right')[side]} text {columns[side][at].as_py()!r} is empty"
            raise bad_input(path, problem, "write the text, or remove the pair", lines[at])
        yield rows.astype(np.int32)
        done += len(rows)
    if not done:
        raise bad_input(path, "contains no pairs", REMEDY)


def _rows_of(table: Texts, column: pa.LargeStringArray) -> np.ndarray:
    """The rows of ids with many repetitions."""
    known = column.dictionary_encode()
    return table.find(known.dictionary)[known.indices.to_numpy()]


def _id_columns(path: Path) -> Iterator[tuple[Sequence[int], list[pa.LargeStringArray]]]:
    """Blocks of lines and id columns; parquet is read by column, other formats by row."""
    if bare_suffix(path) == ".parquet":
        file = _parquet(path)
        names = _id_names(path, file.schema_arrow.names)
        first = 1
        for batch in _batches(path, file, names):
            columns = [_as_ids(path, name, batch.column(name)) for name in names]
            for name, column in zip(names, columns, strict=True):
                if column.null_count:
                    at = int(np.argmax(column.is_null().to_numpy(zero_copy_only=False)))
                    raise bad_input(path, f"has no {name}", REMEDY, first + at)
            yield range(first, first + len(batch)), columns
            first += len(batch)
        return
    records = read_records(path)
    found: tuple[str, str] | None = None
    while block := list(islice(records, _ROWS)):
        found = found or _id_names(path, list(block[0][1]))
        for number, record in block:
            if any(record.get(name) in (None, "") for name in found):
                raise bad_input(path, f"has no {' or no '.join(found)}", REMEDY, number)
            require_characters(path, number, tuple(str(record[name]) for name in found))
        columns = [pa.array([str(record[name]) for _, record in block], pa.large_string()) for name in found]
        yield [number for number, _ in block], columns


def _batches(path: Path, file: pq.ParquetFile, names: tuple[str, str]) -> Iterator[pa.RecordBatch]:
    if any(file.schema_arrow.names.count(name) > 1 for name in names):
        raise bad_input(path, f"has two columns with the same name, {' or '.join(names)}", "keep one of them")
    try:
        yield from file.iter_batches(batch_size=_ROWS, columns=list(names))
    except (pa.ArrowException, OSError) as error:
        reason = str(error).partition("\n")[0]
        raise bad_input(path, f"is damaged ({reason})", "write it again") from error


def _as_ids(path: Path, name: str, column: pa.Array) -> pa.LargeStringArray:
    try:
        ids = column.cast(pa.large_string())
        ids.validate(full=True)  # parquet files may contain bytes that are not UTF-8
        return ids
    except pa.ArrowException as error:
        raise bad_input(
            path, f"column {name!r} ({column.type}) cannot be read as ids", "write ids as strings"
        ) from error


def first_columns(path: Path) -> tuple[list[str], list[str]]:
    """The id columns and all columns of a list."""
    if bare_suffix(path) == ".parquet":
        there = _parquet(path).schema_arrow.names
    else:
        _, record = next(read_records(path), (0, {}))
        if not record:
            raise bad_input(path, "contains no pairs", REMEDY)
        there = list(record)
    return list(_id_names(path, there)), there


def _id_names(path: Path, names: Iterable[str]) -> tuple[str, str]:
    there = set(names)
    found = next((pair for pair in IDS if set(pair) <= there), None)
    if found is None:
        raise bad_input(path, f"has no id columns, only {', '.join(sorted(there)) or 'none'}", _ID_REMEDY)
    return found


def _parquet(path: Path) -> pq.ParquetFile:
    try:
        return pq.ParquetFile(path)
    except FileNotFoundError as error:
        raise bad_input(path, "no such file", "check its name") from error
    except (pa.ArrowInvalid, OSError) as error:
        reason = str(error).partition("\n")[0]
        raise bad_input(path, f"is not a complete parquet file ({reason})", "write it again") from error
