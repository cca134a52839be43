"""What people pass to a matcher: one text or several, pairs, and what is none of these.

`Matcher` puts these checks around `encode_query`, `encode_document` and `score` of every architecture.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from limbeck.errors import LimbeckError

_PAIRS = "write score([(query, document), ...]), or rank(query, documents)"


def one_or_many(encode: Callable[..., Any]) -> Callable[..., Any]:
    """One text gives its vector, as in sentence-transformers; a list gives a vector for each."""

    @wraps(encode)
    def checked(self: Any, texts: Any, *rest: Any, **named: Any) -> Any:
        if isinstance(texts, str):
            return next(iter(encode(self, [texts], *rest, **named)))
        _require_texts(encode.__name__, texts)
        return encode(self, texts, *rest, **named)

    return checked


def pairs_only(score: Callable[..., Any]) -> Callable[..., Any]:
    """A list of pairs, and nothing else that happens to have a length."""

    @wraps(score)
    def checked(self: Any, pairs: Any, *rest: Any, **named: Any) -> Any:
        if rest and not isinstance(rest[0], int):
            raise LimbeckError(f"score takes one list of pairs, not a query and its documents; {_PAIRS}")
        _require_pairs(pairs)
        return score(self, pairs, *rest, **named)

    return checked


def _require_texts(name: str, texts: Any) -> None:
    if not hasattr(texts, "__len__"):
        raise LimbeckError(f"{name} takes a text or a list of texts, not {type(texts).__name__}; put them in a list")
    for place, text in enumerate(texts, 1):
        if not isinstance(text, str):
            raise LimbeckError(f"{name}: text {place} is {type(text).__name__}, not a string; give strings")


def _require_pairs(pairs: Any) -> None:
    if isinstance(pairs, str) or not hasattr(pairs, "__len__"):
        raise LimbeckError(f"score takes a list of pairs, not {type(pairs).__name__}; {_PAIRS}")
    for place, pair in enumerate(pairs, 1):
        whole = not isinstance(pair, str) and hasattr(pair, "__len__") and len(pair) >= 2
        if not whole or not all(isinstance(text, str) for text in pair):
            raise LimbeckError(f"score: entry {place} is not a pair of texts; {_PAIRS}")
