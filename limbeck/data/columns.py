"""Large tab-separated tables of ids and numbers, read block by block into row numbers and arrays."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv

from limbeck.data.fields import LARGEST, finite
from limbeck.data.lines import block_lines, blocks, filled_lines
from limbeck.data.texts import Texts
from limbeck.errors import LimbeckError, bad_input


@dataclass(frozen=True)
class ColumnBlock:
    """A block of a table: its columns as strings, and enough to name the line of any row."""

    path: Path
    first: int
    raw: bytes
    columns: dict[str, pa.LargeStringArray]

    def rows(self, name: str, noun: str, known: Texts) -> np.ndarray:
        """A column of ids as rows of `known`: [n] int64; unknown ids are refused."""
        rows = known.find(self.columns[name])
        if len(rows) and rows.min() < 0:
            place = int(np.argmax(rows < 0))
            problem = f"names {noun} {self.columns[name][place].as_py()!r}, which the data do not have"
            raise self.wrong(place, problem, f"add the {noun} or remove the line")
        return rows

    def numbers(self, name: str, what: str) -> np.ndarray:
        """A column of finite numbers: [n] float64."""
        try:
            numbers = pc.cast(self.columns[name], pa.float64()).to_numpy(zero_copy_only=False)
        except pa.ArrowInvalid:
            numbers = np.full(len(self.columns[name]), np.nan)
        for place in np.flatnonzero(~(np.abs(numbers) <= LARGEST)):
            numbers[place] = finite(self.path, self.line(int(place)), self.columns[name][int(place)].as_py(), what)
        return numbers

    def line(self, place: int) -> int:
        """The line of a row of this block."""
        return next(islice(block_lines(self.path, self.first, self.raw), place, None))[0]

    def wrong(self, place: int, problem: str, remedy: str) -> LimbeckError:
        """The error for a row of this block."""
        return bad_input(self.path, problem, remedy, self.line(place))


def read_columns(path: str | Path, names: Sequence[str], wanted: Sequence[str] | None = None) -> Iterator[ColumnBlock]:
    """Blocks of a table without a header, with tab-separated fields `names`; only the `wanted` fields are kept."""
    path = Path(path)
    kept = list(wanted or names)
    for first, raw in blocks(path):
        columns = _fast(raw, names, kept)
        if columns is None:
            columns = _slow(path, first, raw, names, kept)
        yield ColumnBlock(path, first, raw, columns)


def _fast(raw: bytes, names: Sequence[str], kept: list[str]) -> dict[str, pa.LargeStringArray] | None:
    try:
        table = pa_csv.read_csv(
            pa.BufferReader(raw),
            pa_csv.ReadOptions(column_names=list(names), block_size=4 << 20),
            pa_csv.ParseOptions(delimiter="\t", quote_char=False, escape_char=False, ignore_empty_lines=False),
            pa_csv.ConvertOptions(
                column_types=dict.fromkeys(names, pa.large_string()), strings_can_be_null=False, include_columns=kept
            ),
        )
    except pa.ArrowInvalid:
        return None
    return {name: table[name].combine_chunks() for name in kept} if len(table) == filled_lines(raw) else None


def _slow(path: Path, first: int, raw: bytes, names: Sequence[str], kept: list[str]) -> dict[str, pa.LargeStringArray]:
    places = [names.index(name) for name in kept]
    values: list[list[str]] = [[] for _ in kept]
    for number, line in block_lines(path, first, raw):
        fields = line.split("\t")
        if len(fields) != len(names):
            problem = f"has {len(fields)} tab-separated fields, not {len(names)}"
            raise bad_input(path, problem, f"write {', '.join(names)} separated by tabs", number)
        for column, place in zip(values, places, strict=True):
            column.append(fields[place])
    return {name: pa.array(column, type=pa.large_string()) for name, column in zip(kept, values, strict=True)}
