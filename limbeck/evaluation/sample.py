"""A few of many queries or pairs: drawn, because neighbours in a file are often alike."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np

T = TypeVar("T")


def sample(items: Sequence[T], limit: int | None, seed: int) -> list[T]:
    """At most `limit` items, drawn by the seed, in their order; the same seed draws the same ones."""
    if limit is None or len(items) <= limit:
        return list(items)
    rows = np.random.default_rng(seed).choice(len(items), size=limit, replace=False)
    return [items[row] for row in np.sort(rows)]
