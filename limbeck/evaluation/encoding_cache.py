"""An encoder that encodes each document once for several measurements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from limbeck.matchers.encoding import Vectors
from limbeck.matchers.encoding_matcher import EncodingMatcher
from limbeck.stores.ragged import Ragged

MOST_BYTES = 2**30  # if the encodings are larger, encode again instead of keeping them


class Remembering:
    """Encodes with a matcher, and keeps the encodings of documents in memory."""

    def __init__(self, matcher: EncodingMatcher, most: int = MOST_BYTES) -> None:
        self.matcher, self.most = matcher, most
        self.encoding, self.score = matcher.encoding, matcher.score
        self._known: dict[str, np.ndarray] = {}
        self._bytes = 0

    @property
    def interaction(self) -> Any:
        return self.matcher.interaction

    def encode(self, texts: Sequence[str], position: int, batch_size: int = 32) -> Vectors:
        if position == 0 or not len(texts):
            return self.matcher.encode(texts, position, batch_size)
        if self._bytes > self.most:
            self._known, self._bytes = {}, 0
            return self.matcher.encode(texts, position, batch_size)
        new = list(dict.fromkeys(text for text in texts if text not in self._known))
        if new:
            encoded = self.matcher.encode(new, position, batch_size)
            self._bytes += (encoded.vectors if isinstance(encoded, Ragged) else encoded).nbytes
            self._known.update(zip(new, encoded, strict=True))
        found = [self._known[text] for text in texts]
        return Ragged.from_list(found) if self.encoding(position).tokens == "ragged" else np.stack(found)
