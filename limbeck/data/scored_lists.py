"""Teacher scores in the jsonl formats of other projects: each line has one query, its documents and their scores.

- PyLate: `query_id`, `document_ids`, `scores`. Also ids in other columns that end in `_id` or `_ids`, in order.
- FlagEmbedding: `query`, `pos`, `neg`, `pos_scores`, `neg_scores`.
- sentence-transformers: the first column is the query, every further column of strings (or of lists of strings) holds
    documents, and `label`, `labels`, `score` or `scores` holds one number for each document; or, as MarginMSELoss also
    accepts, one margin (first document minus other) for each document but the first.

A margin does not give the scores themselves. It is read as score 0 for the first document and -margin for the other:
correct up to a constant per query, which does not affect margin and softmax objectives.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from limbeck.data.fields import finite, identifier, type_name
from limbeck.data.lines import json_lines
from limbeck.errors import bad_input

_LABELS = ("label", "labels", "score", "scores")
_REMEDY = "give `query_id, document_ids, scores`, or `query, pos, neg, pos_scores, neg_scores`, or texts and `scores`"


@dataclass(frozen=True)
class ScoredList:
    """The documents of one query with their scores. The first `positives` documents are known to be relevant."""

    line: int
    query: str
    documents: list[str]
    scores: list[float]
    by_id: bool
    positives: int = 0
    margins: bool = False


def read_scored_lists(path: Path) -> Iterator[ScoredList]:
    """Yield the scored list in each line of a jsonl file."""
    for number, record in json_lines(path):
        if "query_id" in record:
            yield _by_id(path, number, record)
        elif "pos" in record:
            yield _flag_embedding(path, number, record)
        else:
            yield _sentence_transformers(path, number, record)


def _by_id(path: Path, number: int, record: dict[str, Any]) -> ScoredList:
    columns = [name for name in record if name.endswith(("_id", "_ids")) and name != "query_id"]
    values = [value for name in columns for value in _as_list(_unpacked(path, number, record[name]))]
    documents = [identifier(path, number, value, "a document id") for value in values]
    query = identifier(path, number, record["query_id"], "`query_id`")
    scores, margins = _scores(path, number, record, len(documents))
    return ScoredList(number, query, documents, scores, True, _positives(columns), margins)


def _flag_embedding(path: Path, number: int, record: dict[str, Any]) -> ScoredList:
    query = _text(path, number, record.get("query"), "`query`")
    documents: list[str] = []
    scores: list[float] = []
    for side in ("pos", "neg"):
        texts = [_text(path, number, text, f"`{side}`") for text in _as_list(record.get(side) or [])]
        given = record.get(f"{side}_scores")
        if not isinstance(given, list):
            problem = f"has no list `{side}_scores`"
            raise bad_input(path, problem, "score the file first (FlagEmbedding's add_reranker_score.py)", number)
        if len(given) != len(texts):
            problem = f"has {len(texts)} texts in `{side}` and {len(given)} numbers in `{side}_scores`"
            raise bad_input(path, problem, "give one score for each text", number)
        documents += texts
        scores += [finite(path, number, value) for value in given]
    return ScoredList(number, query, documents, scores, False, len(_as_list(record["pos"] or [])))


def _sentence_transformers(path: Path, number: int, record: dict[str, Any]) -> ScoredList:
    columns = [name for name, value in record.items() if name not in _LABELS and _holds_text(value)]
    if len(columns) < 2:
        raise bad_input(path, f"has no query and documents in its columns {', '.join(record)}", _REMEDY, number)
    query = _text(path, number, record[columns[0]], f"`{columns[0]}`")
    documents = [_text(path, number, text, f"`{name}`") for name in columns[1:] for text in _as_list(record[name])]
    scores, margins = _scores(path, number, record, len(documents))
    return ScoredList(number, query, documents, scores, False, _positives(columns[1:]), margins)


def _scores(path: Path, number: int, record: dict[str, Any], documents: int) -> tuple[list[float], bool]:
    """One score for each document, and whether they come from margins."""
    name = next((name for name in _LABELS if record.get(name) is not None), None)
    if name is None:
        raise bad_input(path, "has no scores", _REMEDY, number)
    values = [finite(path, number, value) for value in _as_list(_unpacked(path, number, record[name]))]
    if documents and len(values) == documents:
        return values, False
    if documents > 1 and len(values) == documents - 1:
        return [0.0, *(-value for value in values)], True
    problem = f"has {documents} documents and {len(values)} numbers in `{name}`"
    raise bad_input(path, problem, "give one score for each document", number)


def _unpacked(path: Path, number: int, value: Any) -> Any:
    """Parse a list that was written as a string, as in PyLate's data sets on the hub."""
    if not (isinstance(value, str) and value.startswith("[")):
        return value
    try:
        return json.loads(value.replace("'", '"'))
    except json.JSONDecodeError as error:
        raise bad_input(path, f"has a list that cannot be read ({error.msg})", "write it as JSON", number) from error


def _positives(columns: list[str]) -> int:
    return int(columns[:1] in (["positive"], ["positive_id"]))


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _holds_text(value: Any) -> bool:
    return isinstance(value, str) or (isinstance(value, list) and bool(value) and isinstance(value[0], str))


def _text(path: Path, number: int, value: Any, what: str) -> str:
    if not isinstance(value, str):
        raise bad_input(path, f"{what} contains {type_name(value)}, not a string", "write every text", number)
    if not value.strip():
        raise bad_input(path, f"{what} is empty", "write every text or leave the line out", number)
    return value
