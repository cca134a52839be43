"""Clear errors for arguments of a matcher that are not a list of texts or a list of pairs."""

from __future__ import annotations

from typing import Any

from limbeck.errors import LimbeckError

_PAIRS = "write score([(query, document), ...]), or rank(query, documents)"


def require_texts(texts: Any) -> None:
    """Require a list of texts; other things with a length are refused."""
    if isinstance(texts, str) or not hasattr(texts, "__len__"):
        raise LimbeckError(f"encode takes a list of texts, not {type(texts).__name__}; put it in a list")
    for place, text in enumerate(texts, 1):
        if not isinstance(text, str):
            raise LimbeckError(f"encode: text {place} is {type(text).__name__}, not a string; give strings")


def require_words(first: str, second: str) -> None:
    """Two texts with something to read in each."""
    for number, text in enumerate((first, second), 1):
        if not text.strip():
            raise LimbeckError(f"text {number} is empty; give two texts with words in them")


def require_pairs(pairs: Any, batch_size: Any = 32) -> None:
    """Require a list of pairs. `score(query, documents)` would pass the documents as the batch size."""
    if not isinstance(batch_size, int):
        raise LimbeckError(f"score takes one list of pairs, not a query and its documents; {_PAIRS}")
    if isinstance(pairs, str) or not hasattr(pairs, "__len__"):
        raise LimbeckError(f"score takes a list of pairs, not {type(pairs).__name__}; {_PAIRS}")
    for place, pair in enumerate(pairs, 1):
        whole = not isinstance(pair, str) and hasattr(pair, "__len__") and len(pair) >= 2
        if not whole or not all(isinstance(text, str) for text in pair):
            raise LimbeckError(f"score: entry {place} is not a pair of texts; {_PAIRS}")
