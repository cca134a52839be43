"""A matcher that encodes each text separately and scores pairs of encodings: all students are of this type."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, TypeGuard

import numpy as np
from torch import nn

from limbeck.matchers.arguments import require_pairs, require_texts
from limbeck.matchers.base import Matcher, distinct
from limbeck.matchers.encoding import Encoding, InMemory, Vectors
from limbeck.matchers.interactions.base import Interaction
from limbeck.matchers.pair_scorer import PairScorer


class EncodingMatcher(Matcher):
    """Texts are encoded separately; an interaction scores their encodings."""

    encoded: Callable[[list[str], int], np.ndarray] | None = None  # stored outputs, while its encoder is frozen

    @property
    @abstractmethod
    def interaction(self) -> Interaction:
        """What scores encodings."""

    @abstractmethod
    def encoding(self, position: int) -> Encoding:
        """The form of the encodings of texts at a position."""

    @abstractmethod
    def encode(self, texts: Sequence[str], position: int, batch_size: int = 32) -> Vectors:
        """The encodings of texts at a position: [n, dim], [n, slots, dim] or ragged."""

    def encoder_modules(self, position: int) -> Sequence[nn.Module]:
        """The modules that encode texts at a position: what has to run, and to be in memory, for a query (0)."""
        return [self]

    @property
    def outputs(self) -> int:
        return self.interaction.outputs

    def columns(self, pairs: Sequence[tuple[str, ...]]) -> list[list[str]]:
        """The texts of pairs at each position. By default a pair has two: further texts are joined to the second."""
        return [[pair[0] for pair in pairs], [" ".join(pair[1:]) for pair in pairs]]

    def encode_query(self, texts: Sequence[str] | str, batch_size: int = 32) -> Any:
        """The encodings of queries, the first texts of pairs; for a single text, its own."""
        return self._encode(texts, 0, batch_size)

    def encode_document(self, texts: Sequence[str] | str, batch_size: int = 32) -> Any:
        """The encodings of documents, the second texts of pairs; for a single text, its own."""
        return self._encode(texts, 1, batch_size)

    def _encode(self, texts: Sequence[str] | str, position: int, batch_size: int) -> Any:
        if isinstance(texts, str):
            return next(iter(self.encode([texts], position, batch_size)))
        require_texts(texts)
        return self.encode(texts, position, batch_size)

    def score(self, pairs: Sequence[tuple[str, ...]], batch_size: int = 32) -> np.ndarray:
        """Encode each distinct text once; after that a pair only costs the interaction."""
        require_pairs(pairs, batch_size)
        if not len(pairs):
            return np.zeros((0,) if self.outputs == 1 else (0, self.outputs), dtype=np.float32)
        stores, rows = self.encode_pairs(pairs, batch_size)
        self.eval()
        scores = PairScorer(self.interaction, stores).score(rows)
        return scores[:, 0] if self.outputs == 1 else scores

    def encode_pairs(self, pairs: Sequence[tuple[str, ...]], batch_size: int = 32) -> tuple[list[InMemory], np.ndarray]:
        """The encodings of the distinct texts of each position, and the rows [pairs, positions] of pairs in them."""
        stores, rows = [], []
        for position, texts in enumerate(self.columns(pairs)):
            different, places = distinct(texts)
            stores.append(InMemory(self.encode(different, position, batch_size)))
            rows.append(places)
        return stores, np.stack(rows, axis=1)


def encodes_apart(matcher: object) -> TypeGuard[EncodingMatcher]:
    """Whether texts are encoded separately, so that encodings can be stored; not so for a cross-encoder.

    Anything with the same methods counts, such as a wrapper; a matcher from elsewhere that only has `score` does not.
    """
    encoding = getattr(matcher, "encoding", None)
    return encoding is not None and encoding(0) is not None
