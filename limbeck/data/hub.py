"""Data sets on the Hugging Face hub: `hf:owner/name`, or `hf:owner/name:part` for one of its configurations.

A set with the parts `corpus` and `queries` is a ranking set. Its judgements are in the part `qrels`, in the default
part, or in a separate set named `owner/name-qrels`, as BEIR publishes them. Any other set is read as pairs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib import import_module
from typing import Any

import numpy as np

from limbeck.data.cache import cached_texts
from limbeck.data.dataset import PairData, Qrels, RankingData
from limbeck.data.pairs import SPLITS, pair_data
from limbeck.data.texts import Texts, batches_of
from limbeck.errors import LimbeckError

_QUERY_ID, _DOCUMENT_ID = ("query-id", "query_id"), ("corpus-id", "corpus_id", "doc_id", "document_id")
_ID = ("_id", "id", "doc_id", "query_id", "document_id", "passage_id")
_TEXT = ("text", "passage", "query")
_GRADE = ("score", "relevance", "label")


def load_hub(name: str) -> RankingData | PairData:
    """Read a data set from the Hugging Face hub."""
    hub = optional_package("datasets", "datasets", f"hf:{name}")
    name, _, part = name.partition(":")
    try:
        parts = hub.get_dataset_config_names(name)
        if not part and {"corpus", "queries"} <= set(parts):
            return _ranking(hub, name, parts)
        loaded = hub.load_dataset(name, part or (parts[0] if len(parts) == 1 else None))
    except (OSError, ValueError) as error:
        reason = str(error).strip().partition("\n")[0] or type(error).__name__
        raise LimbeckError(f"hf:{name}: {reason}; check the name, its parts and the network") from error
    splits = {SPLITS.get(split, split): rows for split, rows in loaded.items()}
    return pair_data(name, {split: (f"hf:{name}/{split}", enumerate(rows, 1)) for split, rows in splits.items()})


def _ranking(hub: Any, name: str, parts: list[str]) -> RankingData:
    corpus, queries = (_texts(hub, name, part) for part in ("corpus", "queries"))
    own = next((part for part in ("qrels", "default") if part in parts), None)
    judged = hub.load_dataset(name, own) if own else hub.load_dataset(f"{name}-qrels")
    qrels = {SPLITS.get(split, split): _qrels(f"hf:{name}/{split}", rows) for split, rows in judged.items()}
    for part in qrels.values():
        refuse_unknown(f"hf:{name}", part, queries, corpus)
    return RankingData(name, corpus, refuse_empty(f"hf:{name}", queries), qrels)


def _texts(hub: Any, name: str, part: str) -> Texts:
    rows = next(iter(hub.load_dataset(name, part).values()))
    place = f"hf:{name}/{part}"
    if not len(rows):
        raise LimbeckError(f"{place}: is empty; choose another set")

    def records() -> Iterator[tuple[str, str, str]]:
        for number, row in enumerate(rows, 1):
            yield str(_field(place, number, row, _ID)), row.get("title") or "", _field(place, number, row, _TEXT)

    return cached_texts(place, str(rows._fingerprint), lambda: batches_of(records()), twice(place))


def _qrels(place: str, rows: Iterable[Mapping[str, Any]]) -> Qrels:
    qrels: Qrels = {}
    for number, row in enumerate(rows, 1):
        query, document = (str(_field(place, number, row, names)) for names in (_QUERY_ID, _DOCUMENT_ID))
        qrels.setdefault(query, {})[document] = int(next((row[name] for name in _GRADE if name in row), 1))
    return qrels


def _field(place: str, number: int, row: Mapping[str, Any], names: tuple[str, ...]) -> Any:
    value = next((row[name] for name in names if row.get(name) is not None), None)
    if value is None:
        raise LimbeckError(f"{place}: row {number} has none of {', '.join(names)}; its columns are {', '.join(row)}")
    return value


def refuse_empty(place: str, queries: Texts) -> Texts:
    """The queries; none may be empty."""
    empty = next((key for key, text in queries.items() if not text.strip()), None)
    if empty is not None:
        raise LimbeckError(f"{place}: query {empty!r} is empty; leave it out, or use a copy of the set on disk")
    return queries


def optional_package(module: str, package: str, name: str) -> Any:
    """Import an optional package that a data set needs."""
    try:
        return import_module(module)
    except ImportError as error:
        raise LimbeckError(f"{name}: needs the package {package}; pip install {package}") from error


def refuse_unknown(place: str, qrels: Qrels, queries: Texts, corpus: Texts) -> None:
    """Refuse judgements of ids that the set does not have."""
    documents = list({document for grades in qrels.values() for document in grades})
    for noun, keys, known in (("query", list(qrels), queries), ("document", documents, corpus)):
        missing = np.flatnonzero(known.find(keys) < 0)
        if len(missing):
            problem = f"judges {noun} {keys[missing[0]]!r}, which it does not have"
            raise LimbeckError(f"{place}: {problem}; tell the publisher of the set")


def twice(place: str) -> Callable[[str], LimbeckError]:
    """The error for an id that occurs twice in a published set."""
    return lambda key: LimbeckError(f"{place}: has the id {key!r} twice; tell the publisher of the set")
