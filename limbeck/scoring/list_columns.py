"""Columns of the user's list to copy into the result, in addition to its ids or texts.

They are copied once into an Arrow file of the job, from which each shard takes its rows, for all formats of the list.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from limbeck.data.lines import bare_suffix
from limbeck.data.passages import common_kind, kind_of, value_as
from limbeck.data.records import read_records
from limbeck.errors import LimbeckError, bad_input, did_you_mean

ALL, NONE = "all", "none"
_ROWS = 16384


@dataclass(frozen=True)
class Shown:
    """What the result shows of the list: ids or texts at some positions, and other columns by name."""

    positions: list[int]
    others: list[str]


def chosen(columns: str | None, naming: Sequence[str], there: Sequence[str]) -> Shown:
    """The columns for `--columns`: by default the ids or texts (`naming`, one column for each)."""
    every = list(range(len(naming)))
    if columns is None:
        return Shown(every, [])
    if columns.strip() == NONE:
        return Shown([], [])
    if columns.strip() == ALL:
        return Shown(every, [name for name in there if name not in naming and name != "texts"])
    asked = [name.strip() for name in columns.split(",") if name.strip()]
    known = dict.fromkeys([*there, *naming])
    unknown = next((name for name in asked if name not in known), None)
    if unknown is not None:
        raise LimbeckError(f"--columns {unknown}: there is no such column; {did_you_mean(unknown, list(known))}")
    positions = [at for at in every if naming[at] in asked or "texts" in asked]
    return Shown(positions, [name for name in dict.fromkeys(asked) if name not in naming and name != "texts"])


def write_columns(path: Path, names: list[str], file: Path) -> None:
    """Copy columns of a list, one row per pair. Types come from parquet, or are those that fit all values."""
    batches = _of_parquet(path, names) if bare_suffix(path) == ".parquet" else _of_records(path, names)
    first = next(batches)
    with open(file, "wb") as handle, pa.ipc.new_file(handle, first.schema) as writer:
        writer.write_batch(first)
        for batch in batches:
            writer.write_batch(batch)


def _of_parquet(path: Path, names: list[str]) -> Iterator[pa.RecordBatch]:
    try:
        file = pq.ParquetFile(path)
        for batch in file.iter_batches(batch_size=_ROWS, columns=names):
            batch.validate(full=True)  # parquet files may contain bytes that are not UTF-8
            yield pa.record_batch([_plain(batch.column(name)) for name in names], names=names)
    except (pa.ArrowException, OSError) as error:
        reason = str(error).partition("\n")[0]
        raise bad_input(path, f"is damaged ({reason})", "write it again") from error


def _plain(column: pa.Array) -> pa.Array:
    """Without dictionary encoding: an Arrow file can have only one dictionary for all batches."""
    return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column


def _of_records(path: Path, names: list[str]) -> Iterator[pa.RecordBatch]:
    """Read twice: the type of a column is known only at the end of the list."""
    kinds: dict[str, set[pa.DataType]] = {name: set() for name in names}
    for _, record in read_records(path):
        for name in names:
            if record.get(name) is not None:
                kinds[name].add(kind_of(record[name]))
    types = {name: common_kind(found) for name, found in kinds.items()}
    schema = pa.schema([(name, pa.large_string() if pa.types.is_null(of) else of) for name, of in types.items()])
    records = (record for _, record in read_records(path))
    while block := list(islice(records, _ROWS)):
        columns = [
            pa.array([value_as(row.get(field.name), field.type) for row in block], field.type) for field in schema
        ]
        yield pa.record_batch(columns, schema=schema)


def open_columns(file: Path) -> pa.Table:
    """The columns that `write_columns` wrote, memory-mapped."""
    return pa.ipc.open_file(pa.memory_map(str(file))).read_all()


def rows_of(table: pa.Table, numbers: np.ndarray, taken: Sequence[str]) -> dict[str, Any]:
    """Some rows of the columns; if the result already has a column NAME (`taken`), it becomes `list_NAME`."""
    if len(numbers) and numbers[-1] - numbers[0] == len(numbers) - 1 and (np.diff(numbers) == 1).all():
        some = table.slice(int(numbers[0]), len(numbers))
    else:
        some = table.take(pa.array(numbers))
    return {f"list_{name}" if name in taken else name: some[name] for name in table.column_names}
