"""Pseudo-queries for users without queries: spans of their documents.

A span is either a whole sentence, or some consecutive words of one, as many as a query has; each with probability 1/2.
A title counts as a sentence.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from limbeck.data.tables import TextRecord
from limbeck.files import digest
from limbeck.generation.draws import own_draws

CODE_VERSION = 1
LENGTHS = tuple(range(3, 13))  # words per query, if there are no queries to take lengths from
LONGEST = 32  # maximum words of a sentence; the rest is cut
_END = re.compile(r"(?<=[.!?])\s+|\n\s*\n")
_EDGES = " \t\n,;:()[]{}\"'"


@dataclass(frozen=True)
class Spans:
    """`lengths` has one number of words for each known query; lengths are drawn from it."""

    per_query: int = 2
    seed: int = 0
    lengths: tuple[int, ...] = LENGTHS
    batch_size: int = 1024

    def identity(self) -> dict[str, Any]:
        lengths = digest(",".join(map(str, self.lengths)))
        return {"per_query": self.per_query, "seed": self.seed, "lengths": lengths, "code": CODE_VERSION}

    def write(self, rows: Sequence[TextRecord]) -> list[list[str]]:
        return [self._spans(row) for row in rows]

    def _spans(self, row: TextRecord) -> list[str]:
        key, title, text = row
        found = sentences(f"{title}\n\n{text}")
        if not found:
            return [""] * self.per_query
        order = own_draws(self.seed, key, -1).permutation(len(found))  # use all sentences before any again
        return [
            self._span(found[order[number % len(found)]], own_draws(self.seed, key, number))
            for number in range(self.per_query)
        ]

    def _span(self, words: list[str], own: np.random.Generator) -> str:
        if own.random() < 0.5:
            return " ".join(words[:LONGEST])
        length = min(self.lengths[int(own.integers(len(self.lengths)))], len(words))
        start = int(own.integers(len(words) - length + 1))
        return " ".join(words[start : start + length]).strip(_EDGES)


def sentences(text: str) -> list[list[str]]:
    """The words of each sentence; one-word sentences are only used if there are no others."""
    found = [words for words in (part.split() for part in _END.split(text)) if words]
    return [words for words in found if len(words) > 1] or found
