"""Make pair sets from a ranking set, as in the papers, or more pairs for a pair set.

`q2p` (VIRT's Q2P): every judged positive, and for each of them one of BM25's first 100 that is not judged positive.
`neighbours` (DiPair App. B): every judged positive; the same number of negatives from the query's nearest 30 documents
(by a model or by BM25) with a similarity below a threshold; and the nearest 50 as a transfer set without labels.
`judged`: every judged document with its grade, scaled so that the highest is 1: graded relevance.

For a pair set, only a transfer set is made: each first text of its training pairs with the 50 nearest second texts.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from limbeck.data import PairData, Qrels, RankingData, Run, Texts, load, positives
from limbeck.data.by_kind import by_kind
from limbeck.data.written import record_files
from limbeck.errors import LimbeckError, did_you_mean
from limbeck.evaluation.rank import retrieve
from limbeck.files import directory_atomically, write_json
from limbeck.matchers import Matcher
from limbeck.matchers import load as load_matcher
from limbeck.progress import track
from limbeck.search.sparse import bm25_candidates, bm25_index
from limbeck.stores.manifest import canonical
from limbeck.training.finished_pairs import any_files, content_digest, finished, require_ours_or_empty
from limbeck.training.queries import draw

HOW = ("q2p", "neighbours", "judged")
Q2P_DEPTH = 100
SPLITS = ("train", "dev", "test")
HARD, NEAR = 30, 50  # neighbours that may become negatives; neighbours in the transfer set
HELD_OUT, MOST_HELD_OUT = 0.1, 2000  # share and maximum of training queries for dev, if there is no dev split
TRANSFER = "transfer.jsonl"

PairRecord = dict[str, object]


@dataclass(frozen=True)
class BuiltPairs:
    """The number of pairs in each file; `transfer` pairs have no labels."""

    folder: Path
    counts: dict[str, int]


def build_pairs(
    source: str,
    out: str | Path,
    how: str = "q2p",
    model: str | None = None,
    below: float | None = None,
    hard: int | None = None,
    near: int | None = None,
    seed: int = 0,
    titles: bool = False,
) -> BuiltPairs:
    """Write a folder of pair files with the splits of a ranking set; no query is in two splits.

    A folder that the same call has finished is checked and not changed.

    With `titles`, title and text of a document are separate texts: triples instead of pairs.
    """
    if how not in HOW:
        raise LimbeckError(f"--how {how}: unknown; {did_you_mean(how, list(HOW))}")
    if how != "neighbours":
        _refuse_idle_options(how, {"below": below, "hard": hard, "near": near})
    if how == "judged":
        _refuse_idle_options(how, {"model": model})
    out = Path(out).expanduser()
    require_ours_or_empty(out)
    data = load(source)
    facts: PairRecord = {
        "source": str(source),
        "how": how,
        "model": model,
        "below": below,
        "seed": seed,
        "titles": titles,
    }
    matcher = load_matcher(model) if model is not None else None
    made_from: PairRecord = {"how": how, "below": below, "hard": hard, "near": near, "seed": seed, "titles": titles}
    made_from |= {"data": content_digest(data), "model": canonical(matcher.identity()) if matcher else None}
    if any_files(out):
        return BuiltPairs(out, finished(out, made_from))

    def of_pairs(found: PairData) -> BuiltPairs:
        if how != "neighbours":
            raise LimbeckError(
                f"{source}: contains pairs already; add --how neighbours to make more pairs without labels"
            )
        if titles:
            raise LimbeckError(f"{source}: contains pairs, which have no titles; leave --titles out")
        _refuse_idle_options("neighbours of a pair set", {"below": below, "hard": hard})
        return _more_pairs(found, out, matcher, near or NEAR, facts, made_from)

    def of_ranking(found: RankingData) -> BuiltPairs:
        if how == "neighbours" and below is None:
            raise LimbeckError("--how neighbours requires --below, the threshold for negatives; e.g. 0.5 for cosines")
        if below is not None and not math.isfinite(below):
            raise LimbeckError(f"--below {below} is not a threshold; give a finite number, e.g. 0.5 for cosines")
        found = replace(found, qrels=apart(found, seed))
        make = _Rows(found, titles, seed)
        return _from_ranking(make, out, how, matcher, below, hard or HARD, near or NEAR, facts, made_from)

    return by_kind(data, of_ranking, of_pairs)


def _from_ranking(
    make: _Rows,
    out: Path,
    how: str,
    matcher: Matcher | None,
    below: float | None,
    hard: int,
    near: int,
    facts: PairRecord,
    made_from: PairRecord,
) -> BuiltPairs:
    """The pair files of a ranking set, one for each split, and the transfer set of `neighbours`."""
    data, splits = make.data, list(make.data.qrels)
    depth = {"q2p": Q2P_DEPTH, "neighbours": max(hard, near), "judged": 0}[how]
    lists = _nearest(data, splits, depth, matcher) if depth else {}
    rows = {
        "q2p": lambda split: make.q2p(split, lists),
        "neighbours": lambda split: make.neighbours(split, lists, hard, below or 0.0),
        "judged": make.judged,
    }[how]
    with directory_atomically(out) as folder:
        counts = {split: _write(folder / f"{split}.jsonl", rows(split)) for split in splits}
        if how == "neighbours":
            counts["transfer"] = _write(folder / TRANSFER, make.transfer(lists, near))
        write_json(folder / "pairs.json", facts)
        record_files(folder, "pairs", made_from, counts)
    return BuiltPairs(out, counts)


def _refuse_idle_options(how: str, options: Mapping[str, object]) -> None:
    given = next((name for name, value in options.items() if value is not None), None)
    if given is not None:
        raise LimbeckError(f"--{given}: has no effect for {how}; leave it out")


def apart(data: RankingData, seed: int) -> dict[str, Qrels]:
    """The judgements for train, dev and test; no query is in two of them.

    MS MARCO's `dev.small` is the test split if there is no other. Without a dev split, some training queries are used.
    """
    names = {"train": "train", "dev": "dev", "test": "test" if "test" in data.qrels else "dev.small"}
    found: dict[str, Qrels] = {split: dict(data.qrels.get(name, {})) for split, name in names.items()}
    if not any(found.values()):
        raise LimbeckError(f"{data.name}: has no judgements for {', '.join(SPLITS)}; add qrels")
    taken = set(found["test"])
    found["dev"] = {query: grades for query, grades in found["dev"].items() if query not in taken}
    taken |= set(found["dev"])
    found["train"] = {query: grades for query, grades in found["train"].items() if query not in taken}
    if not found["dev"] and len(found["train"]) > 1:
        held = draw(found["train"], min(MOST_HELD_OUT, max(1, round(HELD_OUT * len(found["train"])))), seed)
        found["dev"] = {query: found["train"].pop(query) for query in held}
    return {split: judged for split, judged in found.items() if judged}


def _more_pairs(
    data: PairData, out: Path, matcher: Matcher | None, near: int, facts: PairRecord, made_from: PairRecord
) -> BuiltPairs:
    """The neighbours of a pair set's training texts, without existing pairs."""
    pairs = data.splits.get("train", [])
    if not pairs or any(len(pair.texts) != 2 for pair in pairs):
        raise LimbeckError(f"{data.name}: has no training pairs of two texts; give a set with such pairs")
    sides = [list(dict.fromkeys(pair.texts[side] for pair in pairs)) for side in (0, 1)]
    queries, corpus = (Texts.from_dict({str(row): text for row, text in enumerate(side)}) for side in sides)
    ranking = RankingData(data.name, corpus, queries, qrels={"train": {str(row): {} for row in range(len(queries))}})
    known = {pair.texts for pair in pairs}
    lists = _nearest(ranking, ["train"], near, matcher)
    found = _Rows(ranking).transfer(lists, near)
    rows = (row for row in found if (row["text_a"], row["text_b"]) not in known)
    with directory_atomically(out) as folder:
        counts = {"transfer": _write(folder / TRANSFER, rows)}
        write_json(folder / "pairs.json", facts)
        record_files(folder, "pairs", made_from, counts)
    return BuiltPairs(out, counts)


def _nearest(data: RankingData, splits: list[str], depth: int, matcher: Matcher | None) -> Run:
    queries = list(dict.fromkeys(query for split in splits for query in data.qrels[split]))
    if matcher is None:
        return bm25_candidates(data, queries, depth, bm25_index(data.corpus))
    return retrieve(matcher, data, queries, depth)


@dataclass(frozen=True)
class _Rows:
    """Rows of pair files from one ranking set."""

    data: RankingData
    titles: bool = False
    seed: int = 0

    def q2p(self, split: str, lists: Run) -> Iterator[PairRecord]:
        for query, grades in self._queries(split):
            relevant = set(positives(grades))
            yield from self._balanced(query, grades, [found for found in lists[query] if found not in relevant])

    def neighbours(self, split: str, lists: Run, hard: int, below: float) -> Iterator[PairRecord]:
        for query, grades in self._queries(split):
            relevant = set(positives(grades))
            nearest = list(lists[query].items())[:hard]
            others = [document for document, score in nearest if document not in relevant and score < below]
            yield from self._balanced(query, grades, others)

    def judged(self, split: str) -> Iterator[PairRecord]:
        """Every judgement; grades are divided by the highest grade of all splits, and grades below 0 count as 0."""
        most = max(grade for some in self.data.qrels.values() for found in some.values() for grade in found.values())
        for query, grades in self._queries(split):
            for document, grade in grades.items():
                yield self._pair(query, document, round(max(grade, 0) / max(most, 1), 4))

    def transfer(self, lists: Run, near: int) -> Iterator[PairRecord]:
        """For training queries only: a query of dev or test must not be learnt from, with or without labels."""
        for query in track(self.data.qrels.get("train", {}), "Pairing neighbours"):
            for document in list(lists[query])[:near]:
                yield self._pair(query, document)

    def _queries(self, split: str) -> Iterable[tuple[str, dict[str, int]]]:
        return track(self.data.qrels[split].items(), f"Pairing {split}", len(self.data.qrels[split]))

    def _balanced(self, query: str, grades: dict[str, int], others: list[str]) -> Iterator[PairRecord]:
        """Every positive, each with a negative from `others` while they last; the draw depends only on the query."""
        drawn = np.random.default_rng([self.seed, *query.encode()]).permutation(len(others))
        for number, document in enumerate(positives(grades)):
            yield self._pair(query, document, 1)
            if number < len(others):
                yield self._pair(query, others[drawn[number]], 0)

    def _pair(self, query: str, document: str, label: float | None = None) -> PairRecord:
        row: PairRecord = {"text_a": self.data.queries[query]}
        if self.titles:
            _, title, text = self.data.corpus.record_at(self.data.corpus.row(document))
            row |= {
                "text_b": title.strip() or text,
                "text_c": text.strip() or title,
            }  # if one is missing, use the other
        else:
            row["text_b"] = self.data.corpus[document]
        return row if label is None else row | {"label": label}


def _write(path: Path, rows: Iterable[PairRecord]) -> int:
    count = 0
    with open(path, "w", encoding="utf-8") as handle:
        for row in rows:
            handle.write(json.dumps(row, ensure_ascii=False) + "\n")
            count += 1
    return count
