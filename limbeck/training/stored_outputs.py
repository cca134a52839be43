"""Outputs of a fixed model for texts, on disk: computed once, read in every step and every run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from limbeck.matchers.encoding import Encoding
from limbeck.matchers.encoding_matcher import EncodingMatcher
from limbeck.stores import EncodingStore
from limbeck.stores.encodings import encode_with_store, store_path
from limbeck.training.processes import main_first

SIDES = ("query", "document")


@dataclass(frozen=True)
class Output:
    """The outputs for texts at one position, and everything that changes them."""

    encoding: Encoding
    key: dict[str, Any]


class StoredOutputs:
    """Outputs of texts at each position; new texts (such as those of dev) are added.

    `given` has stores from elsewhere, by position: they are read first and never written.
    """

    def __init__(
        self, outputs: Sequence[Output], compute: Callable[[list[str], int], np.ndarray], folder: Path
    ) -> None:
        self.compute = compute
        self.given: dict[int, EncodingStore] = {}
        self.stores = [
            EncodingStore.open(
                store_path(folder, output.key), output.key, output.encoding.dim, tokens=output.encoding.tokens
            )
            for output in outputs
        ]

    def add(self, texts: Sequence[str], position: int) -> None:
        """Compute the outputs of texts that are not stored yet."""
        if position in self.given:
            texts = [texts[at] for at in self.given[position].missing(texts)]
        label = f"Encoding {'documents' if position else 'queries'}"
        encode_with_store(self.stores[position], texts, lambda block: self.compute(block, position), label=label)

    def add_all(self, positions: Sequence[Sequence[str]]) -> None:
        """Compute missing outputs for the texts of every position: one process computes, the others wait and read."""
        with main_first() as main:
            if main:
                for position, texts in enumerate(positions):
                    self.add(texts, position)
        for store in self.stores:
            store.refresh()

    def __call__(self, texts: list[str], position: int) -> np.ndarray:
        if position in self.given:
            return self._with_given(texts, position)
        store = self.stores[position]
        if store.missing(texts):
            self.add(texts, position)
        return store.get(texts)

    def _with_given(self, texts: list[str], position: int) -> np.ndarray:
        """Outputs [n, dim] of texts, some of them from a given store."""
        given, own = self.given[position], self.stores[position]
        rows = given.rows(texts)
        there = rows >= 0
        found = np.empty((len(texts), given.dim), dtype=np.float32)
        found[there] = given.take(rows[there])
        others = [text for text, known in zip(texts, there.tolist(), strict=True) if not known]
        if own.missing(others):
            self.add(others, position)
        if others:
            found[~there] = own.get(others)
        return found


def stored_embeddings(teacher: EncodingMatcher, folder: Path) -> StoredOutputs:
    """A teacher's embeddings of queries and documents. An index of the same model has the same keys."""
    outputs = [Output(teacher.encoding(at), {**teacher.identity(at), "side": side}) for at, side in enumerate(SIDES)]

    def compute(texts: list[str], position: int) -> np.ndarray:
        served, teacher.encoded = teacher.encoded, None  # it may serve what is computed here
        try:
            found = teacher.encode(texts, position)
        finally:
            teacher.encoded = served
        assert isinstance(found, np.ndarray)
        return found

    return StoredOutputs(outputs, compute, folder)
