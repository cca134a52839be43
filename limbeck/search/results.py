"""The results of a search: rankings of rows for programs, hits with texts for people."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from limbeck.search.hybrid import List


@dataclass(frozen=True)
class DenseList:
    """Rows and scores of the dense part, best first; `windows` has the best window of each, if passages are cut."""

    rows: np.ndarray
    scores: np.ndarray
    windows: np.ndarray | None = None

    @property
    def pair(self) -> List:
        return self.rows, self.scores


@dataclass(frozen=True)
class Ranking:
    """The answer to one query: rows and scores, best first, the lists they come from, and a note."""

    rows: np.ndarray
    scores: np.ndarray
    dense: DenseList | None = None
    sparse: List | None = None
    note: str | None = None


@dataclass(frozen=True)
class Part:
    """The score and rank of a passage in the dense or the sparse part."""

    score: float
    rank: int


@dataclass(frozen=True)
class Passage:
    """A passage of an index, with its indexed content."""

    id: str
    title: str
    text: str
    fields: dict[str, Any]


@dataclass(frozen=True)
class Hit:
    """A passage that was found. `dense` or `sparse` is None if that part did not find it or was not used.

    `span` has the characters of title and text, joined, in the best window.
    """

    rank: int
    id: str
    score: float
    title: str
    text: str
    fields: dict[str, Any]
    dense: Part | None
    sparse: Part | None
    span: tuple[int, int] | None = None
    terms: dict[str, float] | None = None  # contribution of each shared word to the sparse score, if requested

    @property
    def found_by(self) -> str:
        return " and ".join(name for name, part in (("dense", self.dense), ("sparse", self.sparse)) if part is not None)

    @property
    def whole(self) -> str:
        """Title and text, in the form that the model and BM25 read."""
        return f"{self.title} {self.text}" if self.title else self.text


@dataclass(frozen=True)
class Results:
    """The hits of one query; `note` explains to a person how they were found."""

    query: str
    mode: str
    hits: list[Hit] = field(default_factory=list)
    note: str | None = None

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Candidates:
    """The lists of both parts for many queries, before fusion: rows and scores, best first."""

    dense: list[List]
    sparse: list[List]


def part_of(listed: List | None, row: int) -> Part | None:
    """The score and rank of a row in a list."""
    if listed is None:
        return None
    place = np.flatnonzero(listed[0] == row)
    return Part(float(listed[1][place[0]]), int(place[0]) + 1) if len(place) else None
