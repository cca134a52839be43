"""A random sample of queries or pairs; random, because neighbours in a file are often similar."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np

T = TypeVar("T")


def sample(items: Sequence[T], limit: int | None, seed: int) -> list[T]:
    """At most `limit` items, drawn with the seed, in their original order."""
    if limit is None or len(items) <= limit:
        return list(items)
    rows = np.random.default_rng(seed).choice(len(items), size=limit, replace=False)
    return [items[row] for row in np.sort(rows)]
