"""Score pairs in memory with the head that `limbeck score` would use: the scores, and the speed on one core."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import numpy as np

from limbeck.matchers.base import Matcher
from limbeck.matchers.encoding_matcher import EncodingMatcher, encodes_apart
from limbeck.matchers.pair_scorer import PairScorer
from limbeck.progress import reporting
from limbeck.scoring.heads import require_head, running
from limbeck.scoring.scorer import TRIED, choose_head, one_thread

FEW = 128  # number of pairs to time if each needs a whole forward pass
REPEATS = 5


def score_by_head(matcher: Matcher, pairs: Sequence[tuple[str, ...]], how: str = "auto") -> np.ndarray:
    """Scores as computed by `limbeck score --head HOW`: [n], or [n, outputs]."""
    require_head(matcher, how)
    if not encodes_apart(matcher):
        return matcher.score(pairs)
    scorer, rows = _scorer(matcher, pairs, how)
    scores = scorer.score(rows)
    return scores[:, 0] if matcher.outputs == 1 else scores


def pair_speed(matcher: Matcher, pairs: Sequence[tuple[str, ...]], how: str = "auto") -> float:
    """Pairs per second on one core, the median of a few rounds; everything that depends on one text is precomputed."""
    with reporting(None), one_thread():
        work, count = _ready(matcher, pairs, how)
        work()
        spent = []
        for _ in range(REPEATS):
            start = time.perf_counter()
            work()
            spent.append(time.perf_counter() - start)
    return count / float(np.median(spent))


def _ready(matcher: Matcher, pairs: Sequence[tuple[str, ...]], how: str) -> tuple[Callable[[], object], int]:
    """The function to time, and how many pairs it scores."""
    if not encodes_apart(matcher):
        some = list(pairs[:FEW])
        return lambda: matcher.score(some), len(some)
    some = [pairs[number % min(len(pairs), FEW)] for number in range(TRIED)]
    scorer, rows = _scorer(matcher, some, how)
    return lambda: scorer.score(rows), len(some)


def _scorer(matcher: EncodingMatcher, pairs: Sequence[tuple[str, ...]], how: str) -> tuple[PairScorer, np.ndarray]:
    """Encode the texts and choose the head and its batch size; also returns the pairs as rows."""
    stores, rows = matcher.encode_pairs(pairs)
    best, batch = choose_head(matcher.interaction, how, stores, rows[:TRIED])
    return PairScorer(running(matcher.interaction, best), stores, batch), rows
