"""How a matcher's texts are encoded for its head, and where that is stored."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from limbeck.matchers import DiPair, DualEncoder, Matcher
from limbeck.stores import EncodingStore


def open_store(folder: Path, matcher: Matcher, position: int, dtype: str) -> EncodingStore:
    """The store of one position's texts, keyed by all that changes what it holds."""
    key = {**matcher.identity(), "position": position}
    tokens = matcher.spec.tokens[position] if isinstance(matcher, DiPair) else None
    dim: int = matcher.dim  # type: ignore[assignment]
    return EncodingStore.open(folder, key, dim, dtype, tokens)  # type: ignore[arg-type]


def encoder_of(matcher: Matcher, position: int) -> Callable[[list[str]], np.ndarray]:
    """How texts of one position are encoded."""
    if isinstance(matcher, DiPair):
        return lambda texts: matcher.encode(texts, position)
    assert isinstance(matcher, DualEncoder)
    return matcher.encode_query if position == 0 else matcher.encode_document
