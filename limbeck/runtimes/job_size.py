"""How much a command has to run, so that it measures runtimes only where that is worth its time.

A model that encodes texts apart reads each text once, any other model each pair; so most sizes depend on the matcher.
"""

from __future__ import annotations

from itertools import islice
from math import prod
from pathlib import Path
from typing import Any

from limbeck.data import load
from limbeck.data.by_kind import by_kind
from limbeck.data.dataset import PairData, RankingData
from limbeck.data.pairs import texts_of
from limbeck.data.passages import Passages, load_texts
from limbeck.data.queries import read_queries
from limbeck.data.records import count_records, read_records
from limbeck.matchers.encoding_matcher import encodes_apart

TEXTS, PAIRS = 10_000, 5_000  # take two minutes on two cores, where a measurement takes some 20 seconds
ROWS = 50_000  # of a list, whose distinct texts are counted


def is_long(matcher: Any, size: int) -> bool:
    """Whether a matcher has so much to run that a measurement pays."""
    return size >= (TEXTS if encodes_apart(matcher) else PAIRS)


def passages_in(source: str | Path | Passages) -> int:
    """The documents of a data set or file."""
    return len(source.corpus if isinstance(source, Passages) else load_texts(source))


def queries_in(source: str | Path) -> int:
    """The texts of a file of queries."""
    return len(read_queries(source))


def evaluated_in(
    matcher: Any, source: str | Path, split: str, depth: int, limit: int | None = None, whole: bool = False
) -> int:
    """What it takes to rank `depth` documents for each query of a split, or to search the `whole` corpus."""
    apart = encodes_apart(matcher)

    def ranking(data: RankingData) -> int:
        queries = len(data.qrels.get(split, {}))
        queries = queries if limit is None else min(queries, limit)
        pairs = queries * min(depth, len(data.corpus))
        if not apart:
            return pairs
        return queries + (len(data.corpus) if whole else min(pairs, len(data.corpus)))

    def pairs(data: PairData) -> int:
        rows = data.splits.get(split, [])[:limit]
        return len({text for pair in rows for text in pair.texts}) if apart else len(rows)

    return by_kind(load(source), ranking, pairs)


def annotated_in(source: str | Path, split: str, depth: int, queries: str | Path | None = None) -> int:
    """The pairs of a split's queries, and of those in a file, with `depth` candidates each. All models score them pair
    by pair: a text recurs in many blocks.
    """

    def ranking(data: RankingData) -> int:
        own = data.queries if split == "all" or not data.qrels else data.qrels.get(split, {})
        more = queries_in(queries) if queries is not None else 0
        return (len(own) + more) * min(depth, len(data.corpus))

    return by_kind(load(source), ranking, lambda _: 0)


def listed_in(
    matcher: Any, pairs: str | Path | None, left: str | Path | None = None, right: str | Path | None = None
) -> int:
    """What it takes to score a list of pairs, or every left text with every right one."""
    apart = encodes_apart(matcher)
    sides = [passages_in(side) for side in (left, right) if side is not None]
    if pairs is None:
        return sum(sides) if apart else prod(sides)
    if not apart:
        return count_records(Path(pairs))
    return min(sum(sides), 2 * count_records(Path(pairs))) if sides else _texts_in(Path(pairs))


def _texts_in(pairs: Path) -> int:
    """The distinct texts in the first rows of a list."""
    return len({text for _, record in islice(read_records(pairs), ROWS) for text in texts_of(record) or ()})
