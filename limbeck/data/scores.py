"""Read and write teacher scores that any model made elsewhere.

Files are recognised by their content: TREC runs, Hofstaetter's triples (positive score, negative score, query id,
positive id, negative id), and the jsonl shapes of PyLate, FlagEmbedding and sentence-transformers
(`limbeck.data.scored_lists`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from limbeck.data.candidates import CandidateLists
from limbeck.data.columns import read_columns
from limbeck.data.dataset import Candidates, Qrels, RankingData, Run
from limbeck.data.fields import finite
from limbeck.data.lines import bare_stem, lines
from limbeck.data.runs import Entry, collect_lists
from limbeck.data.scored_lists import ScoredList, read_scored_lists
from limbeck.data.text_lookup import TextLookup, plain
from limbeck.data.texts import Texts
from limbeck.data.trec import iterate_run, read_run
from limbeck.errors import bad_input
from limbeck.files import digest

_TRIPLE = ("positive score", "negative score", "query", "positive", "negative")


def read_scores(path: str | Path, data: RankingData | None = None) -> Candidates:
    """Scores by query and document id.

    With `data`, ids and texts are looked up in it, unknown ones are refused, and the result is columnar.
    Without `data`, the file must contain ids. A repeated pair (the positive of several triples) counts once.
    """
    path = Path(path)
    kind = _kind(path)
    if data is None:
        return read_run(path) if kind == "trec" else _as_dict(path, iterate_scores(path))
    if kind == "hofstaetter":
        return _read_triples(path, data.queries, data.corpus)
    return collect_lists(path, iterate_scores(path, data), data.queries, data.corpus, repeats=kind != "trec")


def iterate_scores(path: str | Path, data: RankingData | None = None) -> Iterator[Entry]:
    """Yield (line, query id, document id, score) one at a time, so the file may be large."""
    path = Path(path)
    kind = _kind(path)
    if kind == "trec":
        return iterate_run(path)
    if kind == "hofstaetter":
        return _iterate_triples(path)
    return _iterate_lists(path, data)


def read_scored_texts(path: str | Path) -> RankingData:
    """A jsonl file of texts and scores as a data set, for scores without a corpus.

    Equal texts get one id. The scores are in `runs["train"]`; texts that the file calls positive are judged relevant.
    """
    path = Path(path)
    queries, documents = _Distinct("q"), _Distinct("d")
    run: Run = {}
    qrels: Qrels = {}
    anchors: dict[str, str] = {}
    for scored in read_scored_lists(path):
        if scored.by_id:
            raise bad_input(path, "contains ids, not texts", "pass the data set with these ids", scored.line)
        query = queries.id_of(scored.query)
        if scored.margins:
            first = documents.id_of(scored.documents[0])
            _refuse_second_anchor(path, scored, anchors.setdefault(query, first), first)
        for place, (text, score) in enumerate(zip(scored.documents, scored.scores, strict=True)):
            document = documents.id_of(text)
            run.setdefault(query, {}).setdefault(document, score)
            if place < scored.positives:
                qrels.setdefault(query, {})[document] = 1
    if not run:
        raise bad_input(path, "contains no scores", "write one scored list per line")
    judged = {"train": qrels} if qrels else {}
    return RankingData(bare_stem(path), documents.texts(), queries.texts(), judged, {"train": run})


def _kind(path: Path) -> str:
    first = next(lines(path), None)
    if first is None:
        raise bad_input(path, "is empty", "give a TREC run, scored triples, or jsonl with scores")
    number, line = first
    if line.lstrip().startswith("{"):
        return "jsonl"
    if len(line.split("\t")) == 5:
        return "hofstaetter"
    if len(line.split()) == 6:
        return "trec"
    problem = "is neither a TREC run (6 columns), nor scored triples (5, separated by tabs), nor jsonl"
    raise bad_input(path, problem, "write the scores in one of these formats", number)


def _as_dict(path: Path, entries: Iterable[Entry]) -> Run:
    run: Run = {}
    for number, query, document, score in entries:
        known = run.setdefault(query, {}).setdefault(document, score)
        if abs(known - score) > 0.01 * (1 + abs(known)):
            problem = f"gives query {query!r} and document {document!r} twice, with scores {known:g} and {score:g}"
            raise bad_input(path, problem, "keep one of the two", number)
    return run


def _read_triples(path: Path, queries: Texts, corpus: Texts) -> CandidateLists:
    sides: dict[str, list[tuple[np.ndarray, ...]]] = {"positive": [], "negative": []}
    for block in read_columns(path, _TRIPLE):
        asked = block.rows("query", "query", queries).astype(np.int32)
        for side, parts in sides.items():
            scores = block.numbers(f"{side} score", f"{side} score").astype(np.float32)
            rows = block.rows(side, "document", corpus).astype(np.int32)
            pairs = asked.astype(np.int64) * max(len(corpus), 1) + rows
            _, first = np.unique(pairs, return_index=True)
            parts.append((asked[first], rows[first], scores[first]))
    columns = [np.concatenate(column) for column in zip(*sides["positive"], *sides["negative"], strict=True)]
    return CandidateLists.scored(queries, corpus, *columns)


def _iterate_triples(path: Path) -> Iterator[Entry]:
    for number, line in lines(path):
        fields = line.split("\t")
        if len(fields) != len(_TRIPLE):
            problem = f"has {len(fields)} tab-separated fields, not {len(_TRIPLE)}"
            raise bad_input(path, problem, f"write {', '.join(_TRIPLE)}", number)
        for score, document in ((fields[0], fields[3]), (fields[1], fields[4])):
            yield number, fields[2], document, finite(path, number, score)


def _iterate_lists(path: Path, data: RankingData | None) -> Iterator[Entry]:
    lookups: tuple[TextLookup, TextLookup] | None = None
    anchors: dict[str, str] = {}
    for scored in read_scored_lists(path):
        if scored.by_id:
            query, documents = scored.query, scored.documents
        elif data is None:
            raise bad_input(path, "contains texts, not ids", "pass the data set that has these texts", scored.line)
        else:
            lookups = lookups or (TextLookup(data.queries), TextLookup(data.corpus))
            query = data.queries.id_at(_row(path, scored.line, "query", scored.query, lookups[0]))
            documents = [
                data.corpus.id_at(_row(path, scored.line, "document", text, lookups[1])) for text in scored.documents
            ]
        if scored.margins:
            _refuse_second_anchor(path, scored, anchors.setdefault(query, documents[0]), documents[0])
        yield from (
            (scored.line, query, document, score) for document, score in zip(documents, scored.scores, strict=True)
        )


def _refuse_second_anchor(path: Path, scored: ScoredList, anchor: str, document: str) -> None:
    """Refuse margins to two different documents of a query, because they have no common zero."""
    if anchor != document:
        problem = f"gives margins to document {document!r} where the same query has margins to {anchor!r} before"
        raise bad_input(path, problem, "give a score for each document instead of margins", scored.line)


def _row(path: Path, number: int, noun: str, text: str, lookup: TextLookup) -> int:
    row = lookup.row(text)
    if row < 0:
        problem = f"contains a {noun} that the data do not have: {text[:60]!r}"
        raise bad_input(path, problem, "read the file without data to use its own texts", number)
    return row


class _Distinct:
    """Texts in order of arrival; equal texts share one id."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._ids: dict[str, str] = {}  # by digest of the text
        self._texts: list[str] = []

    def id_of(self, text: str) -> str:
        key = digest(plain(text))
        if key not in self._ids:
            self._ids[key] = f"{self._prefix}{len(self._ids)}"
            self._texts.append(text)
        return self._ids[key]

    def texts(self) -> Texts:
        return Texts.build((f"{self._prefix}{place}", "", text) for place, text in enumerate(self._texts))
