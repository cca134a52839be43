"""Candidate lists from files too large for a dict: MS MARCO's top-1000 and rank files, runs, teacher scores."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from pathlib import Path

import numpy as np

from limbeck.data.candidates import CandidateLists
from limbeck.data.columns import read_columns
from limbeck.data.lines import lines
from limbeck.data.texts import Texts
from limbeck.data.trec import iterate_run
from limbeck.errors import bad_input

Entry = tuple[int, str, str, float]  # line, query id, document id, score
_TOLERANCE = 0.01  # scores of a repeated pair may differ by rounding only


def read_top_lists(path: Path, queries: Texts, corpus: Texts) -> CandidateLists:
    """MS MARCO's `top1000.*`: query id, passage id, query, passage. The order in the file is used as the rank."""
    parts = [
        (block.rows("query", "query", queries), block.rows("document", "document", corpus))
        for block in read_columns(path, ("query", "document", "query text", "passage"), ("query", "document"))
    ]
    return CandidateLists.ordered(queries, corpus, *_joined(path, parts))


def read_run_lists(path: Path, queries: Texts, corpus: Texts) -> CandidateLists:
    """A run file: MS MARCO's `query id, passage id, rank` (the score of rank r is -r), or TREC's six columns."""
    first = next(lines(path), (0, ""))[1]
    if len(first.split()) == 6:
        return collect_lists(path, iterate_run(path), queries, corpus, repeats=False)
    parts = []
    for block in read_columns(path, ("query", "document", "rank")):
        rows = block.rows("query", "query", queries), block.rows("document", "document", corpus)
        parts.append((*rows, -block.numbers("rank", "rank")))
    return CandidateLists.scored(queries, corpus, *_joined(path, parts))


def collect_lists(path: Path, entries: Iterable[Entry], queries: Texts, corpus: Texts, repeats: bool) -> CandidateLists:
    """Lists from single entries; unknown ids are refused. With `repeats`, a pair may repeat with the same score."""
    parts = []
    source = iter(entries)
    while block := list(islice(source, 65536)):
        places, query_ids, document_ids, scores = zip(*block, strict=True)
        found = _known_rows(path, places, "query", query_ids, queries)
        listed = _known_rows(path, places, "document", document_ids, corpus)
        parts.append((found, listed, np.array(scores, np.float64), np.array(places)))
    query_rows, document_rows, values, numbers = _joined(path, parts)
    _refuse_repeats(path, query_rows * max(len(corpus), 1) + document_rows, values, numbers, repeats)
    return CandidateLists.scored(queries, corpus, query_rows, document_rows, values)


def _known_rows(path: Path, numbers: Sequence[int], noun: str, keys: Sequence[str], known: Texts) -> np.ndarray:
    rows = known.find(keys)
    if rows.min() < 0:
        place = int(np.argmax(rows < 0))
        problem = f"names {noun} {keys[place]!r}, which the data do not have"
        raise bad_input(path, problem, f"add the {noun} or remove the line", numbers[place])
    return rows


def _refuse_repeats(path: Path, pairs: np.ndarray, scores: np.ndarray, numbers: np.ndarray, allowed: bool) -> None:
    order = np.argsort(pairs, kind="stable")
    again = np.flatnonzero(pairs[order][1:] == pairs[order][:-1]) + 1
    earlier, later = scores[order[again - 1]], scores[order[again]]
    wrong = again[np.abs(earlier - later) > _TOLERANCE * (1 + np.abs(earlier))] if allowed else again
    if len(wrong):
        first = wrong[np.argmin(numbers[order[wrong]])]
        values = f"{scores[order[first - 1]]:g} and {scores[order[first]]:g}"
        problem = f"has a query and document twice, with scores {values}"
        raise bad_input(path, problem, "keep one of the two", int(numbers[order[first]]))


def _joined(path: Path, parts: Sequence[tuple[np.ndarray, ...]]) -> list[np.ndarray]:
    if not parts:
        raise bad_input(path, "is empty", "give one candidate per line, or remove the file")
    return [np.concatenate(column) for column in zip(*parts, strict=True)]
