"""The texts from which new queries are made: training queries of a data set, a file of queries, or documents.

Queries for evaluation are left out: no query of a dev or test split is a source, even if it is in another split too.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

from limbeck.data import RankingData, load
from limbeck.data.by_kind import require_ranking
from limbeck.data.lines import bare_suffix, plain_or_gz
from limbeck.data.queries import distinct, read_queries, text_key
from limbeck.data.tables import JsonLines, read_texts
from limbeck.data.texts import Texts
from limbeck.errors import LimbeckError

TRAIN = "train"
_MEASURES = re.compile(r"(dev|test|val|eval)", re.IGNORECASE)  # prefixes of splits for evaluation
_FILES = (".txt", ".jsonl", ".csv", ".tsv", ".parquet")


@dataclass(frozen=True)
class Source:
    """Texts to make queries from, and the queries that exist already."""

    texts: Texts
    noun: str  # "queries" or "documents"
    known: frozenset[str] = frozenset()  # keys of all queries of the data, which do not count as new
    held_out: int = 0  # queries of the split that a dev or test split has too
    lengths: tuple[int, ...] = field(default=())  # number of words of each training query


def query_source(source: str | Path, split: str | None = None) -> Source:
    """The queries of a split, or of a file."""
    if _is_file(source):
        _refuse_split(source, split)
        queries = distinct(read_queries(source), source)
        return Source(queries, "queries", _keys(queries))
    data = _ranking(source)
    queries, held_out = training_queries(data, split)
    if not len(queries):
        problem = f"all queries of split {split or TRAIN!r} are in a dev or test split too"
        raise LimbeckError(f"{source}: {problem}; give a file of other queries")
    return Source(distinct(queries, source), "queries", _keys(data.queries), held_out)


def document_source(source: str | Path, split: str | None = None) -> Source:
    """The documents of a data set or a file; spans get the lengths of the queries of `split`, if there are any."""
    corpus = _corpus_alone(source)
    if corpus is not None:
        _refuse_split(source, split)
        return Source(corpus, "documents")
    data = _ranking(source)
    own = Texts.build(())
    if split is not None or TRAIN in data.qrels or not data.qrels:
        own, _ = training_queries(data, split)
    lengths = tuple(sorted(len(text.split()) for _, text in own.items()))
    return Source(data.corpus, "documents", _keys(data.queries), 0, lengths)


def titles(source: str | Path) -> Texts:
    """The titles of a corpus, by the ids of the documents."""
    corpus = _corpus_alone(source)
    corpus = _ranking(source).corpus if corpus is None else corpus
    found = Texts.build((key, "", title) for key, title, _ in corpus.records() if title.strip())
    if not len(found):
        raise LimbeckError(f"{source}: its documents have no titles to draw from; give a file with --from")
    return found


def training_queries(data: RankingData, split: str | None) -> tuple[Texts, int]:
    """The queries of a split that are in no dev or test split, and how many were left out; all, if none is judged."""
    if split is not None and _MEASURES.match(split):
        problem = f"--split {split}: queries that measure a model must not be trained on"
        raise LimbeckError(f"{problem}; choose a training split")
    if not data.qrels and split is None:
        return data.queries, 0
    chosen = data.queries.rows(data.judgements(split or TRAIN))
    named = [*data.qrels.items(), *data.answered.items()]
    measured = {query for name, queries in named if _MEASURES.match(name) for query in queries}
    said = {text_key(text) for text in data.queries.take(data.queries.rows(measured))}
    rows = [row for row in chosen.tolist() if text_key(data.queries.text_at(row)) not in said]
    return Texts.build(data.queries.record_at(row) for row in rows), len(chosen) - len(rows)


def _ranking(source: str | Path) -> RankingData:
    remedy = "give a ranking set, or a file with one query per line"
    return require_ranking(load(source), str(source), "contains pairs, not queries", remedy)


def _is_file(source: str | Path) -> bool:
    path = Path(source).expanduser()
    return path.is_file() and bare_suffix(path) in _FILES


def _corpus_alone(source: str | Path) -> Texts | None:
    """The documents of a file, or of a folder that contains only `corpus.jsonl`."""
    if _is_file(source):
        return read_queries(source, "document", may_be_empty=True)
    folder = Path(source).expanduser()
    file = plain_or_gz(folder / "corpus.jsonl") if folder.is_dir() else None
    if file is None or plain_or_gz(folder / "queries.jsonl") is not None:
        return None
    return read_texts(file, JsonLines("document", may_be_empty=True))


def _refuse_split(source: str | Path, split: str | None) -> None:
    if split is not None:
        raise LimbeckError(f"--split {split}: {source} has no splits; leave it out")


def _keys(queries: Texts) -> frozenset[str]:
    return frozenset(text_key(text) for _, text in queries.items())
