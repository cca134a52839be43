"""jsonl and tab-separated files of (id, title, text), parsed block by block into Arrow.

Each block first goes to Arrow's parsers, which are fast and create no Python objects. If they fail, or if their
result looks wrong (a missing or empty id, or a number of rows other than the number of lines), Python reads the block
again line by line. That either finds the mistake and its line, or shows that the block is valid (blank lines, or ids
that are numbers in one line and strings in another).
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.json as pa_json

from limbeck.data.cache import cached_texts, file_state
from limbeck.data.fields import identifier, type_name
from limbeck.data.lines import block_lines, blocks, filled_lines, lines, open_binary, parse_json
from limbeck.data.texts import SCHEMA, Texts
from limbeck.errors import LimbeckError, bad_input

TextRecord = tuple[str, str, str]  # id, title, text
_ARROW_BLOCK = 4 << 20


class Layout(Protocol):
    """The format of one kind of file, and the word for its rows in messages."""

    @property
    def noun(self) -> str: ...

    @property
    def may_be_empty(self) -> bool: ...

    def body(self, block: bytes) -> bytes:
        """The first block of a file, without the header."""

    def parse(self, block: bytes) -> pa.Table:
        """Parse a whole block quickly; may raise pa.ArrowInvalid."""

    def row(self, path: Path, number: int, line: str) -> TextRecord:
        """Parse one line; every mistake raises an error for the user."""


@dataclass(frozen=True)
class JsonLines:
    """BEIR's `corpus.jsonl` and `queries.jsonl`: `_id`, `text` and optionally `title`; other keys are ignored."""

    noun: str
    may_be_empty: bool = False

    def body(self, block: bytes) -> bytes:
        return block

    def parse(self, block: bytes) -> pa.Table:
        try:
            return self._parse(block, pa.large_string())
        except pa.ArrowInvalid:
            return self._parse(block, pa.int64())

    def _parse(self, block: bytes, id_type: pa.DataType) -> pa.Table:
        names = [("_id", id_type), ("title", pa.large_string()), ("text", pa.large_string())]
        options = pa_json.ParseOptions(explicit_schema=pa.schema(names), unexpected_field_behavior="ignore")
        table = pa_json.read_json(
            pa.BufferReader(block), pa_json.ReadOptions(block_size=_ARROW_BLOCK), parse_options=options
        )
        titles = pc.fill_null(table["title"], "")
        return pa.table([table["_id"].cast(pa.large_string()), titles, table["text"]], schema=SCHEMA)

    def row(self, path: Path, number: int, line: str) -> TextRecord:
        record = parse_json(path, number, line)
        if "_id" not in record:
            raise bad_input(path, f"the {self.noun} has no `_id`", "give every line an `_id`", number)
        key = identifier(path, number, record["_id"], "`_id`")
        title = record.get("title")
        if "text" not in record:
            raise bad_input(path, f"{self.noun} {key!r} has no `text`", "give every line a `text`", number)
        for name, value in (("text", record["text"]), ("title", "" if title is None else title)):
            if not isinstance(value, str):
                problem = f"`{name}` of {self.noun} {key!r} is {type_name(value)}, not a string"
                raise bad_input(path, problem, "write it as a string", number)
        return key, title or "", record["text"]


@dataclass(frozen=True)
class TabSeparated:
    """One text per line, fields separated by tabs: MS MARCO's `collection.tsv` and queries, DPR's `psgs_w100.tsv`.

    `columns` names the fields in order: `id`, `text` and optionally `title`. `quoted` files (DPR's) quote fields that
    contain quotes, as in CSV; in other files every character is literal. A first line equal to `columns` is a header.
    """

    noun: str
    columns: tuple[str, ...] = ("id", "text")
    quoted: bool = False
    may_be_empty: bool = False

    def body(self, block: bytes) -> bytes:
        first, _, rest = block.partition(b"\n")
        return rest if first.rstrip(b"\r") == "\t".join(self.columns).encode() else block

    def parse(self, block: bytes) -> pa.Table:
        table = pa_csv.read_csv(
            pa.BufferReader(block),
            pa_csv.ReadOptions(column_names=list(self.columns), block_size=_ARROW_BLOCK),
            pa_csv.ParseOptions(
                delimiter="\t",
                quote_char='"' if self.quoted else False,
                double_quote=self.quoted,
                escape_char=False,
                ignore_empty_lines=False,
            ),
            pa_csv.ConvertOptions(
                column_types=dict.fromkeys(self.columns, pa.large_string()), strings_can_be_null=False
            ),
        )
        empty = pa.repeat(pa.scalar("", pa.large_string()), len(table))
        titles = table["title"] if "title" in self.columns else empty
        return pa.table([table["id"], titles, table["text"]], schema=SCHEMA)

    def row(self, path: Path, number: int, line: str) -> TextRecord:
        fields = next(csv.reader([line], delimiter="\t", strict=True), []) if self.quoted else line.split("\t")
        if len(fields) != len(self.columns):
            problem = f"has {len(fields)} tab-separated fields, not {len(self.columns)}"
            raise bad_input(path, problem, f"write {', '.join(self.columns)} separated by tabs", number)
        record = dict(zip(self.columns, fields, strict=True))
        key = identifier(path, number, record["id"], f"the id of the {self.noun}")
        return key, record.get("title", ""), record["text"]


def read_texts(path: Path, layout: Layout) -> Texts:
    """The texts of a file, from the cache if possible."""
    with open_binary(path):
        source = f"{path.resolve()} {layout!r}"
    return cached_texts(
        source, file_state(path), lambda: _batches(path, layout), lambda key: _duplicate(path, layout, key)
    )


def _batches(path: Path, layout: Layout) -> Iterator[pa.RecordBatch]:
    seen = False
    for first, block in blocks(path):
        if first == 1 and (body := layout.body(block)) is not block:
            first, block = 2, body
        table = _fast(layout, block)
        if table is None:
            table = _slow(path, layout, first, block)
        for batch in table.combine_chunks().to_batches():
            seen = True
            yield batch
    if not seen:
        raise bad_input(path, f"contains no {layout.noun}", f"write one {layout.noun} per line")


def _fast(layout: Layout, block: bytes) -> pa.Table | None:
    """The block as Arrow reads it, or None if the result may be wrong."""
    try:
        table = layout.parse(block)
        table.validate(full=True)  # Arrow's JSON reader accepts bytes that are not UTF-8
    except pa.ArrowInvalid:
        return None
    if len(table) != filled_lines(block) or any(column.null_count for column in table.columns):
        return None
    needed = [table["id"]] if layout.may_be_empty else [table["id"], table["text"]]
    blank = any(pc.any(pc.equal(pc.utf8_trim_whitespace(column), "")).as_py() for column in needed)
    return None if blank else table


def _slow(path: Path, layout: Layout, first: int, block: bytes) -> pa.Table:
    rows = [_checked_row(path, layout, number, line) for number, line in block_lines(path, first, block)]
    columns = zip(*rows, strict=True) if rows else ([], [], [])
    return pa.table([pa.array(column, type=pa.large_string()) for column in columns], schema=SCHEMA)


def _checked_row(path: Path, layout: Layout, number: int, line: str) -> TextRecord:
    try:
        key, title, text = layout.row(path, number, line)
        "".join((key, title, text)).encode("utf-8")
    except csv.Error as error:
        raise bad_input(path, f"has wrong quotes ({error})", "write a quote inside quotes twice", number) from error
    except UnicodeEncodeError as error:
        problem = "contains half of a surrogate pair, which is not a character"
        raise bad_input(path, problem, "write the file as UTF-8", number) from error
    if not text.strip() and not layout.may_be_empty:
        raise bad_input(path, f"{layout.noun} {key!r} is empty", "write its text or leave the line out", number)
    return key, title, text


def _duplicate(path: Path, layout: Layout, key: str) -> LimbeckError:
    """The error for an id that is on two lines; it names both lines."""
    earlier = 0
    for number, line in _body_lines(path, layout):
        if layout.row(path, number, line)[0] != key:
            continue
        if earlier:
            problem = f"duplicate {layout.noun} id {key!r}, first on line {earlier}"
            return bad_input(path, problem, f"give every {layout.noun} a different id", number)
        earlier = number
    return bad_input(path, f"duplicate {layout.noun} id {key!r}", f"give every {layout.noun} a different id")


def _body_lines(path: Path, layout: Layout) -> Iterator[tuple[int, str]]:
    for number, line in lines(path):
        if number > 1 or layout.body(line.encode() + b"\n"):
            yield number, line
