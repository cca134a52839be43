"""Data sets of the package ir_datasets, if it is installed: `ir:msmarco-passage/dev/small`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import numpy as np

from limbeck.data.cache import cached_texts
from limbeck.data.candidates import CandidateLists
from limbeck.data.dataset import Candidates, LazySplits, Qrels, RankingData
from limbeck.data.hub import optional_package, refuse_empty, refuse_unknown, twice
from limbeck.data.pairs import SPLITS
from limbeck.data.texts import Texts, batches_of
from limbeck.errors import LimbeckError


def load_ir(name: str) -> RankingData:
    """Read a data set of ir_datasets. The name gives the split; sets such as TREC DL's are `test`.

    A name without its own judgements (`beir/scifact`) is read with its subsets train, dev and test. If the set has
    scored documents, they become candidate lists.
    """
    library = optional_package("ir_datasets", "ir-datasets", f"ir:{name}")
    place = f"ir:{name}"
    dataset = _find(library, name)
    if dataset is None:
        raise LimbeckError(f"{place}: ir_datasets has no such set; see https://ir-datasets.com")
    if not dataset.has_docs():
        raise LimbeckError(f"{place}: has no documents; name a set with documents and queries")
    subsets = _subsets(library, name, dataset)
    if not subsets:
        raise LimbeckError(f"{place}: has no queries; name one of its subsets, such as {name}/dev")
    state = str(getattr(library, "__version__", ""))
    corpus = cached_texts(place, state, lambda: batches_of(_rows(dataset.docs_iter(), "doc_id")), twice(place))
    asked = {row[0]: row for part in subsets.values() for row in _rows(part.queries_iter(), "query_id")}
    queries = refuse_empty(place, Texts.build(asked.values()))
    qrels = {split: _qrels(part) for split, part in subsets.items() if part.has_qrels()}
    for part in qrels.values():
        refuse_unknown(place, part, queries, corpus)
    readers: dict[str, Callable[[], Candidates]] = {
        split: partial(_lists, part, queries, corpus) for split, part in subsets.items() if part.has_scoreddocs()
    }
    return RankingData(name, corpus, queries, qrels, LazySplits(readers))


def _find(library: Any, name: str) -> Any:
    try:
        return library.load(name)
    except KeyError:
        return None


def _subsets(library: Any, name: str, dataset: Any) -> dict[str, Any]:
    """The sets with queries by split: the named set, or its subsets."""
    split = next((SPLITS[part] for part in reversed(name.split("/")) if part in SPLITS), "test")
    if dataset.has_qrels():
        return {split: dataset}
    below = {SPLITS[part]: _find(library, f"{name}/{part}") for part in SPLITS}
    found = {split: part for split, part in below.items() if part is not None and part.has_queries()}
    return found or ({split: dataset} if dataset.has_queries() else {})


def _rows(items: Iterable[Any], key: str) -> Iterator[tuple[str, str, str]]:
    """(id, title, text). The title is empty, because the text that ir_datasets gives already contains it."""
    for item in items:
        yield str(getattr(item, key)), "", item.default_text()


def _qrels(part: Any) -> Qrels:
    qrels: Qrels = {}
    for judged in part.qrels_iter():
        qrels.setdefault(judged.query_id, {})[judged.doc_id] = int(judged.relevance)
    return qrels


def _lists(part: Any, queries: Texts, corpus: Texts) -> CandidateLists:
    entries = [(item.query_id, item.doc_id, item.score) for item in part.scoreddocs_iter()]
    asked, listed, scores = zip(*entries, strict=True) if entries else ((), (), ())
    rows = queries.rows(asked), corpus.rows(listed)
    return CandidateLists.scored(queries, corpus, *rows, np.array(scores, np.float32))
