"""The only place that distinguishes ranking sets from pair sets."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from limbeck.data.dataset import PairData, RankingData
from limbeck.errors import LimbeckError

T = TypeVar("T")


def by_kind(data: RankingData | PairData, ranking: Callable[[RankingData], T], pairs: Callable[[PairData], T]) -> T:
    """The result of `ranking` for a ranking set, or of `pairs` for a pair set."""
    return pairs(data) if isinstance(data, PairData) else ranking(data)


def require_ranking(
    data: RankingData | PairData, source: str, problem: str = "contains pairs, not rankings", remedy: str | None = None
) -> RankingData:
    """The data if they are a ranking set, otherwise an error that says what to give."""

    def refuse(_: PairData) -> RankingData:
        raise LimbeckError(f"{source}: {problem}; {remedy or 'give a set with queries and documents'}")

    return by_kind(data, lambda found: found, refuse)
