"""Write teacher scores in formats that other projects train on; `limbeck.data.scores` reads them."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from limbeck.data.dataset import Candidates, RankingData, ranked
from limbeck.data.lines import writing
from limbeck.data.trec import write_run
from limbeck.errors import LimbeckError, did_you_mean

SHAPES = ("trec", "sentence-transformers", "pylate", "flagembedding")


def write_scores(run: Candidates, path: str | Path, shape: str = "trec", data: RankingData | None = None) -> None:
    """Write scores as a TREC run or in a jsonl format; `data` provides texts and judgements if the format needs them.

    Judged positives come first, as MarginMSELoss expects, then the others by descending score.

    - `pylate`: `query_id`, `document_ids`, `scores`.
    - `flagembedding`: `query`, `pos`, `neg`, `pos_scores`, `neg_scores`. It requires a positive: for a query without
      judgements, this is the document with the highest score.
    - `sentence-transformers`: `query`, `document_1`, ..., `scores` if all lists have one length; otherwise `query`,
      `documents`, `scores`, the form for its listwise losses.
    """
    if shape not in SHAPES:
        raise LimbeckError(f"unknown shape of scores {shape!r}; {did_you_mean(shape, list(SHAPES))}")
    if shape == "trec":
        write_run(run, path)
        return
    if data is None and shape != "pylate":
        raise LimbeckError(f"{path}: the shape {shape!r} contains texts; pass the data set that has the texts")
    with writing(path) as handle:
        for record in _records(run, shape, data):
            handle.write(json.dumps(record, ensure_ascii=False, allow_nan=False).encode() + b"\n")


def _records(run: Candidates, shape: str, data: RankingData | None) -> Iterator[dict[str, Any]]:
    relevant = _relevant(data)
    even = shape == "sentence-transformers" and len({len(scores) for scores in run.values()}) == 1
    for query, scores in run.items():
        for document, score in scores.items():
            if not math.isfinite(score):
                raise LimbeckError(f"query {query!r}, document {document!r}: the score is {score}; leave the pair out")
        order = ranked(scores)
        known = relevant.get(query, set())
        positive = [document for document in order if document in known]
        negative = [document for document in order if document not in known]
        if shape == "pylate":
            documents = positive + negative
            yield {"query_id": query, "document_ids": documents, "scores": [scores[key] for key in documents]}
            continue
        assert data is not None
        if shape == "flagembedding":
            positive, negative = (positive, negative) if positive else (negative[:1], negative[1:])
            yield {
                "query": data.queries[query],
                "pos": data.corpus.take(data.corpus.rows(positive)),
                "neg": data.corpus.take(data.corpus.rows(negative)),
                "pos_scores": [scores[key] for key in positive],
                "neg_scores": [scores[key] for key in negative],
            }
            continue
        texts = data.corpus.take(data.corpus.rows(positive + negative))
        columns = {f"document_{k}": text for k, text in enumerate(texts, 1)} if even else {"documents": texts}
        yield {"query": data.queries[query], **columns, "scores": [scores[key] for key in positive + negative]}


def _relevant(data: RankingData | None) -> dict[str, set[str]]:
    """The judged positives of every query, from all splits."""
    found: dict[str, set[str]] = {}
    for qrels in data.qrels.values() if data is not None else ():
        for query, grades in qrels.items():
            found.setdefault(query, set()).update(document for document, grade in grades.items() if grade > 0)
    return found
