"""Texts without judgements: queries from a log, or documents.

    .jsonl, .csv, .parquet   a `text`, optionally a `title` and an `_id` (or `id`)
    .tsv                     id, tab, text, as in MS MARCO
    .txt                     one text per line

All but parquet may be gzipped. A text without an id is named after its file and line: `logged-12`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from limbeck.data.cache import cached_texts, file_state
from limbeck.data.fields import identifier, is_utf8, type_name
from limbeck.data.lines import bare_stem, bare_suffix, lines, require
from limbeck.data.records import Record, read_records
from limbeck.data.tables import JsonLines, TabSeparated, TextRecord, read_texts
from limbeck.data.texts import Texts, batches_of
from limbeck.data.written import require_unchanged
from limbeck.errors import bad_input
from limbeck.progress import say

_FORMS = "give a .jsonl, .csv or .parquet file with a `text`, a .tsv of id and text, or a .txt with one text per line"
_JSON = re.compile(r'\s*[{\[]\s*"')
_PLURALS = {"query": "queries"}


def read_queries(path: str | Path, noun: str = "query", may_be_empty: bool = False) -> Texts:
    """The texts of a file by id; `noun` names one of them in messages."""
    file = require(Path(path).expanduser(), _FORMS)
    require_unchanged(file)
    suffix = bare_suffix(file)
    if suffix == ".tsv":
        return read_texts(file, TabSeparated(noun, may_be_empty=may_be_empty))
    if suffix == ".jsonl" and "_id" in next((record for _, record in read_records(file)), {"_id": ""}):
        return read_texts(file, JsonLines(noun, may_be_empty))
    if suffix not in (".jsonl", ".csv", ".parquet", ".txt"):
        raise bad_input(path, f"is not a file of {_plural(noun)} that limbeck knows", _FORMS)
    return cached_texts(
        f"{file.resolve()} {noun} {may_be_empty}",
        file_state(file),
        lambda: batches_of(_rows(file, noun, may_be_empty)),
        lambda key: bad_input(file, f"duplicate {noun} id {key!r}", f"give every {noun} a different id"),
    )


def read_unlabelled(path: str | Path, noun: str = "text") -> list[str]:
    """The distinct texts of a file, each after its title if it has one. Empty texts are skipped."""
    found = distinct(read_queries(path, noun, may_be_empty=True), path, noun)
    texts = [text for _, text in found.items() if text.strip()]
    if not texts:
        raise bad_input(path, f"all of its {_plural(noun)} are empty", f"write one {noun} per line")
    return texts


def distinct(texts: Texts, path: str | Path, noun: str = "query") -> Texts:
    """The same table without duplicates. Texts that differ only in case or spaces are duplicates."""
    first: dict[str, int] = {}
    for row, (_, text) in enumerate(texts.items()):
        first.setdefault(text_key(text), row)
    if len(first) == len(texts):
        return texts
    say(f"{path}: {len(texts) - len(first):,} of {len(texts):,} {_plural(noun)} are duplicates and are left out")
    return Texts.build(texts.record_at(row) for row in first.values())


def text_key(text: str) -> str:
    """A key that is equal for texts that differ only in case or spaces."""
    return " ".join(text.split()).casefold()


def _rows(path: Path, noun: str, may_be_empty: bool) -> Iterator[TextRecord]:
    number = 0
    source = _plain(path, noun) if bare_suffix(path) == ".txt" else _table(path, noun)
    for number, row in source:
        if not may_be_empty and not row[2].strip():
            raise bad_input(path, f"the {noun} is empty", "write its text or leave the line out", number)
        if not is_utf8("".join(row)):
            raise bad_input(
                path, "contains half of a surrogate pair, which is not a character", "write it as UTF-8", number
            )
        yield row
    if not number:
        raise bad_input(path, f"contains no {noun}", f"write one {noun} per line")


def _plain(path: Path, noun: str) -> Iterator[tuple[int, TextRecord]]:
    for number, line in lines(path):
        if number == 1 and _JSON.match(line):
            raise bad_input(path, f"is JSON where a {noun} is expected", "name the file .jsonl", number)
        yield number, (f"{bare_stem(path)}-{number}", "", line.strip())


def _table(path: Path, noun: str) -> Iterator[tuple[int, TextRecord]]:
    for number, record in read_records(path):
        if "text" not in record:
            columns = ", ".join(record) or "nothing"
            raise bad_input(
                path, f"has no `text`, but {columns}", f"call the column of the {_plural(noun)} text", number
            )
        title = record.get("title")
        for value in (record["text"], "" if title is None else title):
            if not isinstance(value, str):
                raise bad_input(path, f"a {noun} is {type_name(value)}, not a string", "write it as a string", number)
        yield number, (_id(path, number, record), title or "", record["text"])


def _id(path: Path, number: int, record: Record) -> str:
    name = next((name for name in ("_id", "id") if name in record), None)
    return identifier(path, number, record[name], f"`{name}`") if name else f"{bare_stem(path)}-{number}"


def _plural(noun: str) -> str:
    return _PLURALS.get(noun, f"{noun}s")
