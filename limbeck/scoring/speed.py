"""Pairs scored in memory by the head that `limbeck score` would use: what it gives, and how fast it is on one core."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import numpy as np

from limbeck.matchers import DiPair, DualEncoder, Matcher
from limbeck.matchers.base import distinct
from limbeck.progress import reporting
from limbeck.scoring.encoders import encoder_of
from limbeck.scoring.heads import PairHead
from limbeck.scoring.scorer import TRIED, Scorer, choose_head, one_thread

FEW = 128  # pairs that are timed where each costs a whole pass
REPEATS = 5


class InMemory:
    """Vectors that are no longer needed than the measurement takes."""

    def __init__(self, vectors: np.ndarray) -> None:
        self.vectors = vectors

    def take(self, rows: np.ndarray) -> np.ndarray:
        return self.vectors[rows]


def score_by_head(matcher: Matcher, pairs: Sequence[tuple[str, ...]], how: str = "auto") -> np.ndarray:
    """Scores as `limbeck score --head HOW` gives them: [n], or [n, outputs]."""
    PairHead.of(matcher).require(how)
    scorer, rows = _scorer(matcher, pairs, how)
    scores = scorer.score(rows)
    return scores[:, 0] if matcher.outputs == 1 else scores


def pair_speed(matcher: Matcher, pairs: Sequence[tuple[str, ...]], how: str = "auto") -> float:
    """Pairs a second on one core, the median of a few rounds; all that depends on one text alone is done ahead."""
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
    """What is to be timed, and how many pairs it scores."""
    if not isinstance(matcher, DiPair | DualEncoder):
        some = list(pairs[:FEW])
        return lambda: matcher.score(some), len(some)
    some = [pairs[number % min(len(pairs), FEW)] for number in range(TRIED)]
    scorer, rows = _scorer(matcher, some, how)
    return lambda: scorer.score(rows), len(some)


def _scorer(matcher: Matcher, pairs: Sequence[tuple[str, ...]], how: str) -> tuple[Scorer, np.ndarray]:
    """Texts encoded, the head and its batch chosen; and the pairs as rows."""
    columns = [[pair[0] for pair in pairs], [" ".join(pair[1:]) for pair in pairs]]
    if isinstance(matcher, DiPair):
        columns = [columns[0], *matcher.parts([pair[1:] for pair in pairs])]
    stores, rows = [], []
    for position, texts in enumerate(columns):
        different, places = distinct(texts)
        stores.append(InMemory(encoder_of(matcher, position)(different)))
        rows.append(places)
    head, chosen = PairHead.of(matcher), np.stack(rows, axis=1)
    best, batch = choose_head(head, how, stores, chosen[:TRIED])
    return Scorer(head.folded(best), stores, batch), chosen
