"""Read and write TREC runs and judgements; a `.gz` suffix means gzip."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from limbeck.data.dataset import Candidates, Qrels, Run, ranked
from limbeck.data.fields import finite, whole_number
from limbeck.data.lines import lines, writing
from limbeck.data.texts import Texts
from limbeck.errors import LimbeckError, bad_input

LARGEST_GRADE = 2**31 - 1  # evaluation uses int32


def iterate_run(path: str | Path) -> Iterator[tuple[int, str, str, float]]:
    """Yield (line, query id, document id, score) of a TREC run: `query Q0 document rank score tag`."""
    for number, line in lines(path):
        fields = line.split()
        if len(fields) != 6:
            problem = f"has {len(fields)} fields, not the 6 of a TREC run"
            raise bad_input(path, problem, "write `query Q0 document rank score tag`", number)
        yield number, fields[0], fields[2], finite(path, number, fields[4])


def read_run(path: str | Path) -> Run:
    """A TREC run. As in trec_eval, the scores give the order, not the ranks."""
    run: Run = {}
    for number, query, document, score in iterate_run(path):
        scores = run.setdefault(query, {})
        if document in scores:
            problem = f"document {document!r} is twice in the list of query {query!r}"
            raise bad_input(path, problem, "keep one of the two lines", number)
        scores[document] = score
    if not run:
        raise bad_input(path, "contains no run", "write `query Q0 document rank score tag` lines")
    return run


def iterate_qrels(path: str | Path) -> Iterator[tuple[int, str, str, int]]:
    """Yield (line, query id, document id, grade).

    Reads TREC's four columns (`query 0 document grade`) and BEIR's three (`query-id corpus-id score`), with or without
    BEIR's header line.
    """
    header_possible = True
    for number, line in lines(path):
        fields = line.split("\t") if "\t" in line else line.split()
        if len(fields) not in (3, 4):
            problem = f"has {len(fields)} fields, not 3 or 4"
            raise bad_input(path, problem, "write `query document grade` or `query 0 document grade`", number)
        if header_possible and fields[-1].strip().lower() in ("score", "relevance", "grade", "label"):
            header_possible = False
            continue
        header_possible = False
        query, document = fields[0].strip(), fields[-2].strip()
        if not query or not document:
            raise bad_input(path, "names an empty id", "write `query document grade`", number)
        grade = whole_number(path, number, fields[-1].strip(), "grade")
        if abs(grade) > LARGEST_GRADE:
            raise bad_input(path, f"grade {grade} is too large", f"use at most {LARGEST_GRADE:,}", number)
        yield number, query, document, grade


def read_qrels(path: str | Path, queries: Texts | None = None, corpus: Texts | None = None) -> Qrels:
    """Judgements; with `queries` and `corpus`, unknown ids are refused.

    A pair that is judged twice is refused if the grades differ; an exact repetition is accepted.
    """
    qrels: Qrels = {}
    for number, query, document, grade in iterate_qrels(path):
        grades = qrels.setdefault(query, {})
        if grades.get(document, grade) != grade:
            problem = f"query {query!r} and document {document!r} are judged twice, {grades[document]} and {grade}"
            raise bad_input(path, problem, "keep one of the two lines", number)
        grades[document] = grade
    if not qrels:
        raise bad_input(path, "contains no judgements", "write `query document grade` lines")
    if queries is not None:
        _refuse_unknown(path, "query", 0, queries, list(qrels))
    if corpus is not None:
        _refuse_unknown(path, "document", 1, corpus, list({key for grades in qrels.values() for key in grades}))
    return qrels


def _refuse_unknown(path: str | Path, noun: str, place: int, known: Texts, keys: list[str]) -> None:
    missing = {keys[k] for k in np.flatnonzero(known.find(keys) < 0)}
    if not missing:
        return
    home, have = ("corpus", "the corpus does not have") if place else ("queries", "the queries do not have")
    for number, *named, _ in iterate_qrels(path):
        if named[place] in missing:
            count = f" (and {len(missing) - 1:,} more)" if len(missing) > 1 else ""
            problem = f"names {noun} {named[place]!r}{count}, which {have}"
            raise bad_input(path, problem, f"add it to the {home} or remove its lines here", number)


def write_run(run: Candidates, path: str | Path, tag: str = "limbeck") -> None:
    """Write a TREC run, documents by descending score. Scores are written so that they read back unchanged."""
    with writing(path) as handle:
        for query, scores in run.items():
            for rank, document in enumerate(ranked(scores), 1):
                score = float(scores[document])
                if not math.isfinite(score):
                    problem = f"the score of query {query!r} and document {document!r} is {score}"
                    raise LimbeckError(f"{path}: {problem}; a run must have finite numbers")
                _refuse_space(path, query, document)
                handle.write(f"{query} Q0 {document} {rank} {score!r} {tag}\n".encode())


def write_qrels(qrels: Mapping[str, Mapping[str, int]], path: str | Path) -> None:
    """Write judgements in TREC format: `query 0 document grade`."""
    with writing(path) as handle:
        for query, grades in qrels.items():
            for document, grade in grades.items():
                _refuse_space(path, query, document)
                handle.write(f"{query} 0 {document} {grade}\n".encode())


def _refuse_space(path: str | Path, *ids: str) -> None:
    for key in ids:
        if not key or key.split() != [key]:
            raise LimbeckError(f"{path}: a TREC file cannot contain the id {key!r}; use ids without spaces")
