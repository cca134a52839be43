"""An encoder that encodes a text once, however many measurements ask for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from limbeck.evaluation.rank import Encoder, TokenEncoder
from limbeck.stores.ragged import Ragged

MOST_BYTES = 2**30  # beyond that it is cheaper to encode again than to hold


class Remembering:
    """Has the vectors of `encoder`, one a text or one a token, and keeps those of documents in memory."""

    def __init__(self, encoder: Encoder | TokenEncoder, most: int = MOST_BYTES) -> None:
        self.encoder, self.most = encoder, most
        self.similarity = encoder.similarity
        self.encode_query = encoder.encode_query
        self.score = encoder.score
        self._known: dict[str, np.ndarray] = {}
        self._bytes = 0

    def match(self, queries: Ragged, documents: Ragged) -> np.ndarray:
        encoder: Any = self.encoder
        return encoder.match(queries, documents)

    def encode_document(self, texts: Sequence[str]) -> Any:
        new = list(dict.fromkeys(text for text in texts if text not in self._known))
        if self._bytes > self.most:
            self._known, self._bytes = {}, 0
            return self.encoder.encode_document(list(texts))
        if new:
            encoded = self.encoder.encode_document(new)
            self._bytes += (encoded.vectors if isinstance(encoded, Ragged) else encoded).nbytes
            self._known.update(zip(new, encoded, strict=True))
        if not len(texts):
            return self.encoder.encode_document([])
        found = [self._known[text] for text in texts]
        return np.stack(found) if found[0].ndim == 1 else Ragged.from_list(found)
