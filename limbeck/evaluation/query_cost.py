"""The cost of a query's encoding: the part of a search that a smaller query encoder makes cheaper."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import nn

from limbeck.evaluation.latency import measure_latency, parameter_count
from limbeck.matchers.encoding_matcher import encodes_apart
from limbeck.progress import reporting

TIMED = 20  # queries
REPEATS = 3


@dataclass(frozen=True)
class QueryCost:
    """Of one query by itself: tokenising and encoding it, without any document."""

    ms: float  # median
    parameters: int  # of the modules that encode queries; a separate document tower does not count


def query_cost(matcher: object, texts: Sequence[str]) -> QueryCost | None:
    """Encode some queries one after the other; None for a cross-encoder, which encodes no query by itself."""
    if not encodes_apart(matcher) or not len(texts):
        return None
    with reporting(None):  # drawing a progress bar takes longer than encoding a query
        found = measure_latency(lambda text: matcher.encode([text], 0), list(texts[:TIMED]), repeats=REPEATS)
    return QueryCost(found.p50_ms, parameter_count(nn.ModuleList(matcher.encoder_modules(0))))
