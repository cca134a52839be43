"""The pairs of a run: train, dev and test."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from limbeck.data import Pair, PairData
from limbeck.data.pairs import load_pairs
from limbeck.errors import LimbeckError
from limbeck.files import digest
from limbeck.recipe.data_spec import DataSpec

HELD_OUT = 0.1


@dataclass(frozen=True)
class PairSplits:
    """Pairs by their use. Unlabelled pairs are only trained on with the teacher's scores; they are in `dev` only if no
    pair has a label.
    """

    train: list[Pair]
    dev: list[Pair]
    test: list[Pair]


def split_pairs(data: PairData, spec: DataSpec, seed: int, unlabelled: Sequence[Pair] = ()) -> PairSplits:
    """The pairs of a run. A missing dev split is held out of train. A pair of dev or test is not trained on, in either
    order, and a test pair is not used in dev.
    """
    test = _labelled(data, spec.test)
    tested = _either_way(test)
    dev = [pair for pair in _labelled(data, spec.dev) if pair.texts not in tested]
    elsewhere = tested | _either_way(dev)
    train = _drawn([pair for pair in data.splits.get(spec.train, []) if pair.texts not in elsewhere], None, seed)
    if dev:
        dev = _drawn(dev, spec.dev_queries, seed)
    elif spec.dev is not None:
        count = min(spec.dev_queries or len(train), max(1, round(HELD_OUT * len(train))))
        dev = [pair for pair in train[:count] if pair.label is not None] or train[:count]
        elsewhere |= _either_way(train[:count])
        train = [pair for pair in train[count:] if pair.texts not in elsewhere]
    train = train[: spec.train_queries]
    if spec.labelled_queries is not None:
        labelled = [pair for pair in train if pair.label is not None]
        kept = {id(pair) for pair in labelled[: spec.labelled_queries]}
        train = [pair if id(pair) in kept else replace(pair, label=None) for pair in train]
    extra = [pair for pair in unlabelled if pair.texts not in elsewhere]
    if not train and not extra:
        raise LimbeckError(f"{data.name}: no training pairs in split {spec.train!r}; check the file")
    return PairSplits([*train, *extra], dev, _drawn(test, spec.test_queries, seed))


def _either_way(pairs: Sequence[Pair]) -> set[tuple[str, ...]]:
    """The texts of pairs, in both orders."""
    return {texts for pair in pairs for texts in (pair.texts, pair.texts[::-1])}


def _labelled(data: PairData, split: str | None) -> list[Pair]:
    return [pair for pair in data.splits.get(split or "", []) if pair.label is not None]


def _drawn(pairs: Sequence[Pair], count: int | None, seed: int) -> list[Pair]:
    """`count` pairs in an order that depends only on seed and texts: a larger draw contains the smaller one."""
    return sorted(pairs, key=lambda pair: digest(str(seed), *pair.texts))[:count]


def unlabelled_pairs(path: str) -> list[Pair]:
    """The pairs of a file, ignoring its labels."""
    return [replace(pair, label=None) for pairs in load_pairs(path).splits.values() for pair in pairs]
