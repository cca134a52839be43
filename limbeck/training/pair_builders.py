"""Pair sets out of a ranking set, as the papers make theirs; and more pairs for a pair set.

`q2p` (VIRT's Q2P): every judged positive, and for each of them one of BM25's first 100 that is not judged positive.
`neighbours` (DiPair App. B): every judged positive; as negatives, as many of the query's nearest 30 documents, by a
model or by BM25, whose similarity lies below a threshold; and as a transfer set without labels its nearest 50.

A pair set gets a transfer set alone: each first text of its training pairs with the 50 nearest of their second texts.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from limbeck.data import PairData, RankingData, Run, Texts, load, positives
from limbeck.errors import LimbeckError, did_you_mean
from limbeck.evaluation.rank import retrieve
from limbeck.files import directory_atomically, require_empty_or_absent, write_json
from limbeck.matchers import load as load_matcher
from limbeck.progress import track
from limbeck.search.sparse import bm25_candidates, bm25_index

HOW = ("q2p", "neighbours")
Q2P_DEPTH = 100
SPLITS = ("train", "dev", "test")
TRANSFER = "transfer.jsonl"

Row = dict[str, object]


@dataclass(frozen=True)
class BuiltPairs:
    """How many pairs went where; `transfer` have no labels."""

    folder: Path
    counts: dict[str, int]


def build_pairs(
    source: str,
    out: str | Path,
    how: str = "q2p",
    model: str | None = None,
    below: float | None = None,
    hard: int = 30,
    near: int = 50,
    seed: int = 0,
) -> BuiltPairs:
    """Write a folder of pair files with the splits of a ranking set; no query is in two of them."""
    if how not in HOW:
        raise LimbeckError(f"--how {how}: unknown; {did_you_mean(how, list(HOW))}")
    out = Path(out).expanduser()
    require_empty_or_absent(out, "choose another --out")
    data = load(source)
    facts: Row = {"source": str(source), "how": how, "model": model, "below": below, "seed": seed}
    if not isinstance(data, RankingData):
        if how != "neighbours":
            raise LimbeckError(f"{source}: holds pairs already; add --how neighbours for more of them without labels")
        return _more_pairs(data, out, model, near, facts)
    if how == "neighbours" and below is None:
        raise LimbeckError("neighbours need a threshold for negatives; give --below, e.g. 0.5 for cosines")
    if below is not None and not math.isfinite(below):
        raise LimbeckError(f"--below {below} is no threshold; give a finite number, e.g. 0.5 for cosines")
    splits = [split for split in SPLITS if split in data.qrels]
    if not splits:
        raise LimbeckError(f"{source}: has no judgements for {', '.join(SPLITS)}; add qrels")
    lists = _nearest(data, splits, Q2P_DEPTH if how == "q2p" else max(hard, near), model)
    counts: dict[str, int] = {}
    with directory_atomically(out) as folder:
        for split in splits:
            rows = (
                _q2p(data, split, lists, seed)
                if how == "q2p"
                else _neighbours(data, split, lists, hard, below or 0.0, seed)
            )
            counts[split] = _write(folder / f"{split}.jsonl", rows)
        if how == "neighbours":
            counts["transfer"] = _write(folder / TRANSFER, _transfer(data, lists, near))
        write_json(folder / "pairs.json", facts)
    return BuiltPairs(out, counts)


def _more_pairs(data: PairData, out: Path, model: str | None, near: int, facts: Row) -> BuiltPairs:
    """The neighbours of a pair set's training texts; pairs that it has already are not repeated."""
    pairs = data.splits.get("train", [])
    if not pairs or any(len(pair.texts) != 2 for pair in pairs):
        raise LimbeckError(f"{data.name}: has no training pairs of two texts; give a set that has some")
    sides = [list(dict.fromkeys(pair.texts[side] for pair in pairs)) for side in (0, 1)]
    queries, corpus = (Texts.from_dict({str(row): text for row, text in enumerate(side)}) for side in sides)
    ranking = RankingData(data.name, corpus, queries, qrels={"train": {str(row): {} for row in range(len(queries))}})
    known = {pair.texts for pair in pairs}
    lists = _nearest(ranking, ["train"], near, model)
    rows = (row for row in _transfer(ranking, lists, near) if (row["text_a"], row["text_b"]) not in known)
    with directory_atomically(out) as folder:
        counts = {"transfer": _write(folder / TRANSFER, rows)}
        write_json(folder / "pairs.json", facts)
    return BuiltPairs(out, counts)


def _nearest(data: RankingData, splits: list[str], depth: int, model: str | None) -> Run:
    queries = list(dict.fromkeys(query for split in splits for query in data.qrels[split]))
    if model is None:
        return bm25_candidates(data, queries, depth, bm25_index(data.corpus))
    return retrieve(load_matcher(model), data, queries, depth)


def _pair(data: RankingData, query: str, document: str, label: int | None = None) -> Row:
    row: Row = {"text_a": data.queries[query], "text_b": data.corpus[document]}
    return row if label is None else row | {"label": label}


def _q2p(data: RankingData, split: str, lists: Run, seed: int) -> Iterator[Row]:
    for query, grades in track(data.qrels[split].items(), f"Pairing {split}", len(data.qrels[split])):
        relevant = set(positives(grades))
        yield from _balanced(data, query, grades, [found for found in lists[query] if found not in relevant], seed)


def _neighbours(data: RankingData, split: str, lists: Run, hard: int, below: float, seed: int) -> Iterator[Row]:
    for query, grades in track(data.qrels[split].items(), f"Pairing {split}", len(data.qrels[split])):
        relevant = set(positives(grades))
        nearest = list(lists[query].items())[:hard]
        others = [document for document, score in nearest if document not in relevant and score < below]
        yield from _balanced(data, query, grades, others, seed)


def _balanced(data: RankingData, query: str, grades: dict[str, int], others: list[str], seed: int) -> Iterator[Row]:
    """Every positive, each with a negative drawn from `others` while there are some; the draw is the query's own."""
    drawn = np.random.default_rng([seed, *query.encode()]).permutation(len(others))
    for number, document in enumerate(positives(grades)):
        yield _pair(data, query, document, 1)
        if number < len(others):
            yield _pair(data, query, others[drawn[number]], 0)


def _transfer(data: RankingData, lists: Run, near: int) -> Iterator[Row]:
    """Of training queries alone: a query of dev or test must not be learnt from, labelled or not."""
    for query in track(data.qrels.get("train", {}), "Pairing neighbours"):
        for document in list(lists[query])[:near]:
            yield _pair(data, query, document)


def _write(path: Path, rows: Iterable[Row]) -> int:
    count = 0
    with open(path, "w", encoding="utf-8") as handle:
        for row in rows:
            handle.write(json.dumps(row, ensure_ascii=False) + "\n")
            count += 1
    return count
