"""Queries on their own: logged ones, that nobody judged."""

from __future__ import annotations

from pathlib import Path

from limbeck.data.lines import bare_suffix, require
from limbeck.data.tables import JsonLines, TabSeparated, read_texts
from limbeck.data.texts import Texts
from limbeck.data.written import require_unchanged
from limbeck.errors import bad_input

_FORMS = "give .jsonl lines with _id and text, or .tsv lines with an id and a text"


def read_queries(path: str | Path) -> Texts:
    """A file of queries: jsonl as in a BEIR folder, or tsv as in MS MARCO; gzipped or not."""
    file = require(Path(path), _FORMS)
    require_unchanged(file)
    if bare_suffix(file) == ".jsonl":
        return read_texts(file, JsonLines("query"))
    if bare_suffix(file) == ".tsv":
        return read_texts(file, TabSeparated("query"))
    raise bad_input(path, "is no file of queries that we know", _FORMS)
