"""How many pairs a second, with all that depends on one text alone done ahead."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import numpy as np
import torch

from limbeck.matchers import DiPair, DualEncoder, Matcher
from limbeck.progress import reporting

PAIRS = 4096  # that are timed where a pair costs little
FEW = 128  # where it costs a whole pass
REPEATS = 5


def pair_speed(matcher: Matcher, pairs: Sequence[tuple[str, ...]]) -> float:
    """Pairs a second, the median of a few rounds; texts are encoded before the clock starts where they can be."""
    with reporting(None):
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
    if isinstance(matcher, DiPair | DualEncoder):
        some = [pairs[number % min(len(pairs), FEW)] for number in range(PAIRS)]
        if isinstance(matcher, DiPair):
            encoded = matcher.encode_pairs(some)
            return lambda: matcher.match(*encoded), len(some)
        left = torch.from_numpy(matcher.encode_query([pair[0] for pair in some]))
        right = torch.from_numpy(matcher.encode_document([" ".join(pair[1:]) for pair in some]))
        own = torch.arange(len(some)).unsqueeze(1)
        return lambda: matcher.interaction(left, right, own), len(some)
    some = list(pairs[:FEW])
    return lambda: matcher.score(some), len(some)
