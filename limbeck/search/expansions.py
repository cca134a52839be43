"""Expansions on disk: a sparse index reads them with the documents; a dense index reads only the documents."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from limbeck.data.fields import identifier, type_name
from limbeck.data.lines import json_lines
from limbeck.data.texts import SCHEMA, Texts
from limbeck.data.written import require_unchanged
from limbeck.errors import LimbeckError, bad_input

EXPANSIONS = "expansions.jsonl"
_FORM = 'write {"_id": ..., "queries": [...]} lines, as `limbeck expand` does'
_ROWS = 8192


def read_expansions(path: str | Path) -> Texts:
    """The joined queries of each document, by document id; documents without queries may be missing."""
    path = Path(path)
    require_unchanged(path)
    try:
        texts = Texts.build((key, "", " ".join(queries)) for key, queries in _records(path))
    except LimbeckError as error:
        if str(error).startswith(str(path)):
            raise
        raise LimbeckError(f"{path}: {error}") from error
    if not len(texts):
        raise bad_input(path, "contains no expansions", _FORM)
    return texts


def _records(path: Path) -> Iterator[tuple[str, list[str]]]:
    for number, record in json_lines(path):
        queries = record.get("queries")
        if "_id" not in record or not isinstance(queries, list):
            raise bad_input(path, "has no `_id` or no list of `queries`", _FORM, number)
        for query in queries:
            if not isinstance(query, str):
                raise bad_input(path, f"a query is {type_name(query)}, not a string", _FORM, number)
        yield identifier(path, number, record["_id"], "`_id`"), queries


def expanded(corpus: Texts, expansions: Texts) -> Texts:
    """The corpus with each document's queries appended to its text, in memory; ids and rows do not change."""
    unknown = np.flatnonzero(corpus.find(expansions.ids) < 0)
    if len(unknown):
        name = expansions.id_at(int(unknown[0]))
        raise LimbeckError(
            f"the expansions name document {name!r}, which the corpus does not have; give those of this data set"
        )
    return Texts.from_batches(_expanded(corpus, expansions))


def _expanded(corpus: Texts, expansions: Texts) -> Iterator[pa.RecordBatch]:
    for batch in corpus.batches():
        for start in range(0, len(batch), _ROWS):
            ids, titles, texts = batch.slice(start, _ROWS).columns
            rows = expansions.find(ids)
            found = iter(expansions.take(rows[rows >= 0]))
            added = pa.array([next(found) if row >= 0 else "" for row in rows.tolist()], type=pa.large_string())
            joined = pc.binary_join_element_wise(texts, added, pa.scalar(" ", pa.large_string()))
            both = pc.if_else(pc.equal(added, ""), texts, joined)
            yield pa.record_batch([ids, titles, both], schema=SCHEMA)
