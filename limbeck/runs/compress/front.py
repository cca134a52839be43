"""The front of students and baselines, and which student to take."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

from limbeck.runs.compress.limits import Limits


@dataclass(frozen=True)
class Offer:
    """A model in a runtime: how good it is and what it costs.

    `ms` is what a budget limits. `total_ms` adds what every search of the same kind costs besides, so that offers of
    different kinds can be compared: searching the vectors of a dense model, or BM25's candidates of a re-ranker.
    """

    name: str
    kind: str  # teacher, baseline or student
    quality: float
    ms: float
    total_ms: float
    bytes: float | None = None  # per document; None if unknown
    kept: float | None = None  # share of the teacher's quality


def dominates(one: Offer, other: Offer) -> bool:
    """Whether `one` is at least as good, as fast and as small as `other`, and better in one of these."""
    ours, theirs = _ranks(one, other), _ranks(other, one)
    return all(a >= b for a, b in zip(ours, theirs, strict=True)) and ours != theirs


def _ranks(offer: Offer, beside: Offer) -> tuple[float, ...]:
    """What to compare, higher is better; sizes only if both are known."""
    sizes = () if offer.bytes is None or beside.bytes is None else (-offer.bytes,)
    return (offer.quality, -offer.total_ms, *sizes)


def front(offers: Sequence[Offer]) -> list[Offer]:
    """The offers that no other dominates, from the fastest to the slowest."""
    best = [one for one in offers if not any(dominates(other, one) for other in offers)]
    return sorted(best, key=lambda offer: offer.total_ms)


def meets(offer: Offer, limits: Limits) -> bool:
    """Whether an offer is what the user asked for."""
    needed = limits.needed
    keeps = needed is None or (offer.kept is not None and offer.kept >= needed)
    return keeps and limits.affords(offer.ms, offer.bytes)


def recommend(offers: Sequence[Offer], limits: Limits) -> Offer | None:
    """The student to take; None if there is none.

    With a budget it is the best student within it, otherwise the fastest that keeps enough. If no student is what was
    asked for, it is the nearest: within the budget the best, otherwise the one that is least beyond it.
    """
    students = [one for one in offers if one.kind == "student"]
    right = [one for one in students if meets(one, limits)]
    affordable = [one for one in students if limits.affords(one.ms, one.bytes)]
    has_budget = limits.ms is not None or limits.bytes is not None
    if right:
        return max(right, key=_best) if has_budget else min(right, key=_fastest)
    if affordable:
        return max(affordable, key=_best)
    return min(students, key=lambda one: (_beyond(one, limits), -one.quality), default=None)


def _beyond(offer: Offer, limits: Limits) -> float:
    """How many times as much as the tightest budget an offer costs."""
    costs = [(offer.ms, limits.ms), (offer.bytes, limits.bytes)]
    return max((inf if cost is None else cost / budget for cost, budget in costs if budget is not None), default=0.0)


def _best(offer: Offer) -> tuple[float, float]:
    return offer.quality, -offer.total_ms


def _fastest(offer: Offer) -> tuple[float, float]:
    return offer.total_ms, -offer.quality
