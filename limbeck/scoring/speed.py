"""How many pairs a second one core scores, with all that depends on one text alone done ahead."""

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


def pair_speed(matcher: Matcher, pairs: Sequence[tuple[str, ...]]) -> float:
    """Pairs a second, the median of a few rounds; with the head and the batch that `limbeck score` would choose."""
    with reporting(None), one_thread():
        work, count = _ready(matcher, pairs)
        work()
        spent = []
        for _ in range(REPEATS):
            start = time.perf_counter()
            work()
            spent.append(time.perf_counter() - start)
    return count / float(np.median(spent))


def _ready(matcher: Matcher, pairs: Sequence[tuple[str, ...]]) -> tuple[Callable[[], object], int]:
    """What is to be timed, and how many pairs it scores."""
    if not isinstance(matcher, DiPair | DualEncoder):
        some = list(pairs[:FEW])
        return lambda: matcher.score(some), len(some)
    some = [pairs[number % min(len(pairs), FEW)] for number in range(TRIED)]
    columns = [[pair[0] for pair in some], [" ".join(pair[1:]) for pair in some]]
    if isinstance(matcher, DiPair):
        columns = [columns[0], *matcher.parts([pair[1:] for pair in some])]
    stores, rows = [], []
    for position, texts in enumerate(columns):
        different, places = distinct(texts)
        stores.append(InMemory(encoder_of(matcher, position)(different)))
        rows.append(places)
    head, chosen = PairHead.of(matcher), np.stack(rows, axis=1)
    how, batch = choose_head(head, "auto", stores, chosen)
    scorer = Scorer(head.folded(how), stores, batch)
    return lambda: scorer.score(chosen), len(some)
