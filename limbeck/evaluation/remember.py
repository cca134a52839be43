"""An encoder that encodes a text once, however many measurements ask for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from limbeck.evaluation.rank import Encoder

MOST_TEXTS = 200_000  # some 300 MB at 384 dims; beyond that it is cheaper to encode again than to hold


class Remembering:
    """Has the vectors of `encoder`, and keeps those of documents in memory."""

    def __init__(self, encoder: Encoder, most: int = MOST_TEXTS) -> None:
        self.encoder, self.most = encoder, most
        self.similarity = encoder.similarity
        self.encode_query: Callable[[list[str]], np.ndarray] = encoder.encode_query
        self.score = encoder.score
        self._known: dict[str, np.ndarray] = {}

    def encode_document(self, texts: Sequence[str]) -> np.ndarray:
        new = list(dict.fromkeys(text for text in texts if text not in self._known))
        if len(self._known) + len(new) > self.most:
            self._known = {}
            return self.encoder.encode_document(list(texts))
        if new:
            self._known.update(zip(new, self.encoder.encode_document(new), strict=True))
        if not len(texts):
            return self.encoder.encode_document([])
        return np.stack([self._known[text] for text in texts])
