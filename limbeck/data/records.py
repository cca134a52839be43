"""Rows of a jsonl, csv, tsv or parquet file as dicts, each with its line.

csv files quote as usual, and a quoted field may run over several lines; in tsv files no character is special.
Both begin with a line of column names. In parquet files the number of the row is used as the line.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from limbeck.data.lines import bare_suffix, blocks, json_lines, lines, open_binary
from limbeck.errors import LimbeckError, bad_input

SUFFIXES = (".jsonl", ".csv", ".tsv", ".parquet")

Record = dict[str, Any]
Records = Iterator[tuple[int, Record]]


def read_records(path: Path) -> Records:
    """Yield (line, record); the suffix gives the file type."""
    readers = {".jsonl": json_lines, ".csv": _csv, ".tsv": _tsv, ".parquet": _parquet}
    suffix = bare_suffix(path)
    if suffix not in readers:
        raise bad_input(path, f"has the suffix {suffix!r}", f"give one of {', '.join(SUFFIXES)}")
    return readers[suffix](path)


def count_records(path: Path) -> int:
    """The rows of a file, which is not parsed: a quoted field of several lines counts as several rows."""
    if bare_suffix(path) == ".parquet":
        with open_binary(path) as handle:
            try:
                return int(pq.ParquetFile(handle).metadata.num_rows)
            except (pa.ArrowInvalid, OSError) as error:
                raise _incomplete(path, error) from error
    count = sum(block.count(b"\n") + (not block.endswith(b"\n")) for _, block in blocks(path))
    return max(0, count - (bare_suffix(path) != ".jsonl"))  # others begin with the names of their columns


def _tsv(path: Path) -> Records:
    names: list[str] = []
    for number, line in lines(path):
        fields = line.split("\t")
        if names:
            yield number, _named(path, number, names, fields)
        names = names or [field.strip() for field in fields]


def _csv(path: Path) -> Records:
    names: list[str] = []
    number = 1
    limit = csv.field_size_limit(sys.maxsize)
    try:
        reader = csv.reader((f"{line}\n" for _, line in lines(path, blank=True)), strict=True)
        for fields in reader:
            if names and fields:
                yield number, _named(path, number, names, fields)
            names = names or [field.strip() for field in fields]
            number = reader.line_num + 1
    except csv.Error as error:
        raise bad_input(path, f"has wrong quotes ({error})", "write a quote inside quotes twice", number) from error
    finally:
        csv.field_size_limit(limit)


def _named(path: Path, number: int, names: list[str], fields: list[str]) -> Record:
    if len(fields) != len(names):
        problem = f"has {len(fields)} fields where the first line has {len(names)}"
        raise bad_input(path, problem, "give every line the same columns", number)
    return dict(zip(names, fields, strict=True))


def _parquet(path: Path) -> Records:
    with open_binary(path) as handle:
        try:
            number = 0
            for batch in pq.ParquetFile(handle).iter_batches(batch_size=8192):
                for record in batch.to_pylist():
                    number += 1
                    yield number, record
        except (pa.ArrowInvalid, OSError, UnicodeDecodeError) as error:
            raise _incomplete(path, error) from error


def _incomplete(path: Path, error: Exception) -> LimbeckError:
    reason = str(error).partition("\n")[0]
    return bad_input(path, f"is not a complete parquet file ({reason})", "write it again")
