"""Data sets: texts by id, judgements and candidate lists, or labelled pairs of texts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from limbeck.data.texts import Texts
from limbeck.errors import LimbeckError, did_you_mean

Run = dict[str, dict[str, float]]  # query id -> document id -> score
Qrels = dict[str, dict[str, int]]  # query id -> document id -> grade; 0 means judged as not relevant
Candidates = Mapping[str, Mapping[str, float]]  # a run that may be columnar (`CandidateLists`): read, never written

V = TypeVar("V")


class LazySplits(Mapping[str, V]):
    """Parts of a data set that are read on first access: a top-1000 run has seven million lines."""

    def __init__(self, readers: Mapping[str, Callable[[], V]]) -> None:
        self._readers = dict(readers)
        self._read: dict[str, V] = {}

    def __getitem__(self, split: str) -> V:
        if split not in self._read:
            self._read[split] = self._readers[split]()
        return self._read[split]

    def __contains__(self, split: object) -> bool:
        return split in self._readers

    def __iter__(self) -> Iterator[str]:
        return iter(self._readers)

    def __len__(self) -> int:
        return len(self._readers)


@dataclass(frozen=True)
class RankingData:
    """Documents to rank for queries.

    `runs` has candidate lists for a split: from the data (MS MARCO's top-1000, triples, DPR's negatives), or scores of
    a teacher that ran elsewhere. If only an order is known, the score of rank r is -r. `answers` has the answer strings
    of question-answering sets, by query id; `answered` has the queries of a split with answers, whether they are
    judged or not.
    """

    name: str
    corpus: Texts
    queries: Texts
    qrels: dict[str, Qrels]
    runs: Mapping[str, Candidates] = field(default_factory=dict)
    answers: Mapping[str, list[str]] = field(default_factory=dict)
    answered: Mapping[str, list[str]] = field(default_factory=dict)

    def __repr__(self) -> str:
        judged = ", ".join(f"{split} {len(queries):,}" for split, queries in self.qrels.items()) or "none"
        texts = f"documents: {len(self.corpus):,}, queries: {len(self.queries):,}"
        return f"RankingData({self.name!r}, {texts}, judged: {judged})"

    def judgements(self, split: str) -> Qrels:
        """The judgements of a split; an unknown split raises an error that names the known ones."""
        return _split(self.qrels, split, f"{self.name} has no judgements for split {split!r}")

    def answered_judgements(self, split: str) -> Qrels:
        """The judgements, if any, of the queries of a split that have answers."""
        judged = self.qrels.get(split, {})
        queries = self.answered.get(split) or [query for query in judged if self.answers.get(query)]
        return {query: judged.get(query, {}) for query in queries}

    def candidates(self, split: str) -> Candidates:
        """The candidate lists of a split; an unknown split raises an error that names the known ones."""
        return _split(self.runs, split, f"{self.name} has no candidate lists for split {split!r}")


Label = float | int | tuple[float, ...] | None


@dataclass(frozen=True, slots=True)
class Pair:
    """Two or more texts and their label: a class, a grade, a soft label for each class, or None."""

    texts: tuple[str, ...]
    label: Label


@dataclass(frozen=True)
class PairData:
    """Labelled pairs by split. `classes` has the names of integer labels, if the file used names."""

    name: str
    splits: dict[str, list[Pair]]
    classes: list[str] | None = None

    def __repr__(self) -> str:
        sizes = ", ".join(f"{split} {len(pairs):,}" for split, pairs in self.splits.items()) or "none"
        return f"PairData({self.name!r}, pairs: {sizes})"

    def split(self, split: str) -> list[Pair]:
        """The pairs of a split; an unknown split raises an error that names the known ones."""
        return _split(self.splits, split, f"{self.name} has no split {split!r}")


def positives(grades: Mapping[str, int], at_least: int = 1) -> list[str]:
    """The relevant documents of one query; TREC DL's binary measures use `at_least=2`."""
    return [document for document, grade in grades.items() if grade >= at_least]


def ranked(scores: Mapping[str, float]) -> list[str]:
    """The documents of one query, best first; on equal scores the greater id comes first, as in trec_eval."""
    return [document for _, document in sorted(((score, document) for document, score in scores.items()), reverse=True)]


def _split(parts: Mapping[str, V], split: str, problem: str) -> V:
    if split not in parts:
        known = list(parts)
        raise LimbeckError(f"{problem}; {did_you_mean(split, known) if known else 'it has none'}")
    return parts[split]


__all__ = [
    "Candidates",
    "Label",
    "LazySplits",
    "Pair",
    "PairData",
    "Qrels",
    "RankingData",
    "Run",
    "Texts",
    "positives",
    "ranked",
]
