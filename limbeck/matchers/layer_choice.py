"""Choose which layers of a pretrained model a shallow student keeps, by the information in their outputs.

A subset is good if a linear map of its pooled outputs comes close to the whole model's embeddings, on texts that the
map was not fitted to. This takes seconds for each subset and needs no training.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import combinations
from math import comb

import numpy as np

from limbeck.errors import LimbeckError
from limbeck.matchers.alignment import fit_map
from limbeck.progress import progress

FEW = 20  # at most this many subsets are all tried; otherwise layers are dropped one at a time
Judge = Callable[[tuple[int, ...]], float]


def wanted_layers(text: str, there: int, name: str) -> int:
    """How many layers of the model `name` to keep for `auto` (a third of them) or `auto:2`."""
    count = int(text.partition(":")[2] or max(1, round(there / 3)))
    if count > there:
        raise LimbeckError(f"layers={text}: {name} has {there} layers; ask for at most auto:{there}")
    return count


def choose_layers(there: int, count: int, judge: Judge) -> tuple[tuple[int, ...], dict[tuple[int, ...], float]]:
    """The best `count` of `there` layers by `judge`, and the value of each subset that was tried."""
    found: dict[tuple[int, ...], float] = {}
    if comb(there, count) <= FEW:
        _try(list(combinations(range(there), count)), judge, found)
    else:
        kept: tuple[int, ...] = tuple(range(there))
        while len(kept) > count:
            smaller = [tuple(layer for layer in kept if layer != dropped) for dropped in kept]
            _try(smaller, judge, found)
            kept = max(smaller, key=lambda subset: found[subset])
    return max((subset for subset in found if len(subset) == count), key=lambda subset: found[subset]), found


def _try(subsets: Sequence[tuple[int, ...]], judge: Judge, found: dict[tuple[int, ...], float]) -> None:
    with progress("Trying layers", len(subsets)) as advance:
        for subset in subsets:
            found[subset] = judge(subset)
            advance(1)


def closeness(outputs: np.ndarray, targets: np.ndarray, seed: int = 0) -> float:
    """The mean cosine between linearly mapped outputs and the targets, on held-out texts."""
    return fit_map(outputs, targets, seed).cosine


def subsets_in_words(found: dict[tuple[int, ...], float], count: int, shown: int = 3) -> Iterator[str]:
    """The best subsets with their values."""
    best = sorted((subset for subset in found if len(subset) == count), key=lambda subset: -found[subset])
    yield from (f"{list(subset)} {found[subset]:.3f}" for subset in best[:shown])
