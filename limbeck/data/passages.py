"""Input of an index: passages, their fields, and queries to test the index with if the data have any.

The fields of a passage are all keys of its line in `corpus.jsonl` except `_id`, `title` and `text`. A nested object
is flattened (`metadata.year`), a list is a list of strings. Only an index reads them; other readers ignore them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any

import pyarrow as pa

from limbeck.data.by_kind import require_ranking
from limbeck.data.cache import cached_texts, file_state
from limbeck.data.fields import identifier, type_name
from limbeck.data.lines import bare_suffix, json_lines, lines, plain_or_gz
from limbeck.data.records import read_records
from limbeck.data.tables import JsonLines, TabSeparated, read_texts
from limbeck.data.texts import Texts, batches_of
from limbeck.data.written import require_unchanged
from limbeck.errors import LimbeckError, bad_input
from limbeck.files import digest_of

_OWN = frozenset({"_id", "title", "text"})
_BLOCK = 8192
PassageBlock = tuple[int, dict[str, pa.Array]]  # number of passages, and their columns
_FORMS = "give a data set, or a .jsonl or .tsv file of passages"


@dataclass(frozen=True)
class Passages:
    """A corpus; `fields` has a row for each passage, or is None if no passage has fields."""

    name: str
    corpus: Texts
    fields: pa.Table | None = None
    queries: Texts | None = None

    @classmethod
    def of(cls, passages: Mapping[str, str] | Iterable[Mapping[str, Any]], name: str = "passages") -> Passages:
        """Passages in memory: texts by id, or records like the lines of `corpus.jsonl`.

        >>> Passages.of({"n1": "Use shutil.copy2."}).corpus["n1"]
        'Use shutil.copy2.'
        >>> Passages.of([{"_id": "n1", "title": "Copy", "text": "Use shutil.", "year": 2023}]).fields.to_pylist()
        [{'year': 2023}]
        """
        if isinstance(passages, Mapping):
            passages = [{"_id": key, "text": text} for key, text in passages.items()]
        records = list(passages)
        for number, record in enumerate(records, 1):
            texts = [record.get(key, "") for key in ("_id", "title", "text")] if isinstance(record, Mapping) else [None]
            if not all(isinstance(text, str) for text in texts) or not texts[0]:
                problem = f"passage {number} has no `_id`, or its `_id`, `title` or `text` is not a string"
                raise LimbeckError(f'{problem}; give {{"_id": ..., "text": ...}} records, or texts by id')
        rows = ((record["_id"], record.get("title", ""), record.get("text", "")) for record in records)
        blocks = [(len(records), _columns([_flat(dict(record)) for record in records]))]
        return cls(name, Texts.build(rows), join_fields(blocks))

    @property
    def content_digest(self) -> str:
        """A digest of the passages and their fields."""
        if self.fields is None:
            return self.corpus.content_digest
        rows = self.fields.combine_chunks().to_batches()
        schema = self.fields.schema.serialize().to_pybytes()
        return digest_of(
            chain((self.corpus.content_digest, schema), (batch.serialize().to_pybytes() for batch in rows))
        )


def load_passages(source: str | Path, with_fields: bool = True) -> Passages:
    """The passages of a data set, or of a single file (`corpus.jsonl`, `collection.tsv`).

    Without fields, texts that were read before come from the cache without parsing the file again.
    """
    from limbeck.data import load

    path = Path(source).expanduser()
    if path.is_file():
        require_unchanged(path)
    if path.is_file() and bare_suffix(path) == ".tsv":
        return Passages(path.name, read_texts(path, TabSeparated("document", may_be_empty=True)))
    if path.is_file() and bare_suffix(path) == ".jsonl":
        corpus = read_texts(path, JsonLines("document", may_be_empty=True))
        return Passages(path.name, corpus, read_fields(path) if with_fields else None)
    data = require_ranking(load(source), str(source), "contains pairs, not passages", _FORMS)
    file = plain_or_gz(path / "corpus.jsonl") if with_fields and path.is_dir() else None
    return Passages(data.name, data.corpus, read_fields(file) if file else None, data.queries)


def load_texts(source: str | Path) -> Texts:
    """Texts by id, without fields: from any source of passages, or from a csv or parquet table of `id` and `text`."""
    path = Path(source).expanduser()
    if path.is_file() and bare_suffix(path) in (".csv", ".parquet"):
        return cached_texts(
            f"{path.resolve()} table",
            file_state(path),
            lambda: batches_of(_table_rows(path)),
            lambda key: bad_input(path, f"duplicate text id {key!r}", "give every text a different id"),
        )
    if not path.exists() and not re.match(r"(hf|ir):|pydocs(:all)?$", str(source)):
        remedy = "check the path, or write hf:owner/name for a data set on the hub"
        raise bad_input(str(source), "no such file or folder", remedy)
    return load_passages(source, with_fields=False).corpus


def _table_rows(path: Path) -> Iterator[tuple[str, str, str]]:
    number = 0
    for number, record in read_records(path):
        name = next((name for name in ("_id", "id") if name in record), None)
        if name is None or "text" not in record:
            problem = f"has the columns {', '.join(record)}"
            raise bad_input(path, problem, "call the columns id and text", number)
        key = identifier(path, number, record[name], f"`{name}`")
        title, text = record.get("title") or "", record["text"]
        if not isinstance(text, str) or not isinstance(title, str):
            wrong = text if not isinstance(text, str) else title
            raise bad_input(path, f"a text of {key!r} is {type_name(wrong)}", "write it as a string", number)
        yield key, title, text
    if not number:
        raise bad_input(path, "contains no texts", "write one text per row")


def read_fields(path: Path) -> pa.Table | None:
    """The fields of every line of a jsonl file of passages, or None if there are none."""
    source = (_flat(record) for _, record in json_lines(path))
    blocks: list[PassageBlock] = []
    while records := list(islice(source, _BLOCK)):
        blocks.append((len(records), _columns(records)))
    return join_fields(blocks)


def join_fields(blocks: list[PassageBlock]) -> pa.Table | None:
    """One table with all rows and columns; if one block has numbers and another has texts, all become texts."""
    names = dict.fromkeys(name for _, columns in blocks for name in columns)
    if not names:
        return None
    table = {}
    for name in names:
        kind = common_kind({columns[name].type for _, columns in blocks if name in columns} - {pa.null()})
        parts = [_as(columns[name], kind) if name in columns else pa.nulls(length, kind) for length, columns in blocks]
        table[name] = pa.concat_arrays(parts)
    return pa.table(table)


def _flat(record: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in record.items():
        if not prefix and name in _OWN:
            continue
        if isinstance(value, dict):
            found |= _flat(value, f"{prefix}{name}.")
        elif isinstance(value, list):
            found[f"{prefix}{name}"] = [_text(item) for item in value]
        else:
            found[f"{prefix}{name}"] = value
    return found


def _columns(records: list[dict[str, Any]]) -> dict[str, pa.Array]:
    names = dict.fromkeys(name for record in records for name in record)
    columns = {}
    for name in names:
        values = [record.get(name) for record in records]
        kind = common_kind({kind_of(value) for value in values if value is not None})
        columns[name] = pa.array([value_as(value, kind) for value in values], type=kind)
    return columns


def kind_of(value: Any) -> pa.DataType:
    """The column type for a JSON value."""
    if isinstance(value, int) and not isinstance(value, bool):
        return pa.int64() if -(2**63) <= value < 2**63 else pa.large_string()
    known = {bool: pa.bool_(), float: pa.float64(), list: pa.list_(pa.large_string())}
    return known.get(type(value), pa.large_string())


def common_kind(kinds: set[pa.DataType]) -> pa.DataType:
    """The column type that can hold values of all `kinds`."""
    if len(kinds) == 1:
        return next(iter(kinds))
    if not kinds:
        return pa.null()
    if kinds == {pa.int64(), pa.float64()}:
        return pa.float64()
    return pa.list_(pa.large_string()) if pa.list_(pa.large_string()) in kinds else pa.large_string()


def _as(column: pa.Array, kind: pa.DataType) -> pa.Array:
    if column.type == kind:
        return column
    return pa.array([value_as(value, kind) for value in column.to_pylist()], type=kind)


def value_as(value: Any, kind: pa.DataType) -> Any:
    """A JSON value converted to a column type."""
    if value is None:
        return None
    if pa.types.is_list(kind):
        return [_text(item) for item in (value if isinstance(value, list) else [value])]
    if pa.types.is_large_string(kind):
        return _text(value)
    return float(value) if pa.types.is_float64(kind) else value


def _text(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text.encode("utf-8", "replace").decode("utf-8")  # half of a surrogate pair is not a character


def iterate_ids(path: str | Path) -> Iterator[str]:
    """The ids in a file: one per line, or the `_id` of each line of a .jsonl file."""
    path = Path(path)
    if bare_suffix(path) == ".jsonl":
        for number, record in json_lines(path):
            yield identifier(path, number, record.get("_id"), "`_id`")
    else:
        for number, line in lines(path):
            yield _plain_id(path, number, line.strip())


_JSON = re.compile(r'[{\[]\s*["\[{]|\[[^\]]*,')  # the start of a record or a list; [12] may be an id


def _plain_id(path: Path, number: int, text: str) -> str:
    """A line as an id. A record or an invalid byte is an error; otherwise it would be an id that no passage has."""
    if not text.isprintable():
        raise bad_input(
            path, "contains a character that is not allowed in ids", "write one id per line, as plain text", number
        )
    if _JSON.match(text):
        raise bad_input(
            path, "is JSON where an id is expected", "write one id per line, or rename the file to .jsonl", number
        )
    return text
