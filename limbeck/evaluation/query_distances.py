"""The distances between a model's query embeddings: its geometry, in numbers that can be compared between models."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from limbeck.matchers.encoding_matcher import encodes_apart

MOST_QUERIES = 80  # 3,160 pairs


def query_distances(matcher: object, texts: Sequence[str]) -> list[float] | None:
    """Distances of all pairs among the first texts, as unit vectors; None if a model has no single vector per text.

    Unit vectors, because some students learn their own scale, which changes no ranking.
    """
    if not encodes_apart(matcher) or matcher.encoding(0).tokens is not None or len(texts) < 2:
        return None
    found = np.asarray(matcher.encode(list(texts[:MOST_QUERIES]), 0), dtype=np.float64)
    unit = found / np.maximum(np.linalg.norm(found, axis=1, keepdims=True), 1e-12)
    rows, columns = np.triu_indices(len(unit), 1)
    return np.linalg.norm(unit[rows] - unit[columns], axis=1).round(6).tolist()
