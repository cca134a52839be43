"""How much a command has to run, so that it measures runtimes only where that is worth its time."""

from __future__ import annotations

import os
from pathlib import Path

from limbeck.data import load
from limbeck.data.by_kind import by_kind
from limbeck.data.dataset import PairData, RankingData
from limbeck.data.passages import load_texts

LONG = 10_000  # texts or pairs: minutes, where a measurement takes some 20 seconds
BYTES = 1_000  # of a list, at least, for one text


def passages_in(source: str | Path) -> int:
    """The documents of a data set or file."""
    return len(load_texts(source))


def ranked_in(source: str | Path, split: str, depth: int, limit: int | None = None) -> int:
    """At least as many texts or pairs as it takes to rank `depth` documents for the queries of a split."""

    def ranking(data: RankingData) -> int:
        queries = len(data.queries) if split == "all" else len(data.qrels.get(split, {}))
        return min(_least(queries, limit) * depth, len(data.corpus))

    def pairs(data: PairData) -> int:
        return _least(len(data.splits.get(split, [])), limit)

    return by_kind(load(source), ranking, pairs)


def listed_in(*files: str | Path | None) -> int:
    """At least as many texts as lists of texts and pairs have, by their bytes: they are not read for it."""
    return sum(os.path.getsize(file) for file in files if file is not None and Path(file).is_file()) // BYTES


def _least(count: int, limit: int | None) -> int:
    return count if limit is None else min(count, limit)
