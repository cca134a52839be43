"""Queries near a given one without a model: drop some words, swap some neighbouring words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from limbeck.data.tables import TextRecord
from limbeck.generation.draws import own_draws

CODE_VERSION = 1


@dataclass(frozen=True)
class Perturb:
    """Drop each word with probability `drop`; then swap each word with the next one with probability `swap`.

    If this changes nothing, one word is dropped or moved, so that a query of two or more words always changes.
    """

    per_query: int = 2
    seed: int = 0
    drop: float = 0.2
    swap: float = 0.2
    batch_size: int = 1024

    def identity(self) -> dict[str, Any]:
        own = asdict(self)
        del own["batch_size"]
        return {**own, "code": CODE_VERSION}

    def write(self, rows: Sequence[TextRecord]) -> list[list[str]]:
        return [
            [self._changed(text.split(), own_draws(self.seed, key, number)) for number in range(self.per_query)]
            for key, _, text in rows
        ]

    def _changed(self, words: list[str], own: np.random.Generator) -> str:
        if not words:
            return ""
        kept = [word for word, chance in zip(words, own.random(len(words)), strict=True) if chance >= self.drop]
        changed = self._swapped(kept or [words[int(own.integers(len(words)))]], own)
        if changed != words or len(words) == 1 or not (self.drop or self.swap):
            return " ".join(changed)
        if own.random() * (self.drop + self.swap) < self.drop:
            del changed[int(own.integers(len(changed)))]
        else:
            _swap(changed, int(own.integers(len(changed) - 1)))
        return " ".join(changed)

    def _swapped(self, words: list[str], own: np.random.Generator) -> list[str]:
        place, chances = 0, own.random(len(words))
        while place < len(words) - 1:
            if chances[place] < self.swap:
                _swap(words, place)
                place += 1  # a word moves at most once
            place += 1
        return words


def _swap(words: list[str], place: int) -> None:
    words[place], words[place + 1] = words[place + 1], words[place]
