"""Axes of a sweep whose values are words around a number: layers `first:1, first:2`, weights `0.1 * virt, 1 * virt`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from limbeck.errors import LimbeckError
from limbeck.objectives import parse
from limbeck.runs.grid import OBJECTIVE, Axis, split_outside

NUMBER = re.compile(r"(?<![\w.])(\d+(?:\.\d+)?(?:e[+-]?\d+)?)(?![\w.])")
HOLE = "…"


@dataclass(frozen=True)
class CountedAxis:
    """An axis with a number inside its values; values without one, such as a baseline, have no place."""

    key: str
    places: dict[str, tuple[str, float]]  # value -> the words around the number, and the number

    @property
    def title(self) -> str:
        """What varies: the key, with the words if they are all the same."""
        words = {around for around, _ in self.places.values()}
        return self.key if len(words) > 1 else f"{HOLE} in {next(iter(words))}"

    def line(self, value: str) -> str:
        """The line that a value belongs to; empty if there is only one."""
        words = {around for around, _ in self.places.values()}
        return self.places[value][0] if len(words) > 1 else ""


def counted_axis(axes: Sequence[Axis]) -> CountedAxis | None:
    """The one axis of this kind; None if there is none, or several."""
    found = [CountedAxis(axis.key, places) for axis in axes if (places := _places(axis))]
    return found[0] if len(found) == 1 else None


def _places(axis: Axis) -> dict[str, tuple[str, float]]:
    """Values that differ in a single number, by the words around it; words that occur once have no curve."""
    groups: dict[tuple[str, ...], list[str]] = {}
    written = {value: _written(axis.key, value) for value in axis.values}
    for value, text in written.items():
        groups.setdefault(tuple(NUMBER.split(text)[::2]), []).append(value)
    places: dict[str, tuple[str, float]] = {}
    for words, values in groups.items():
        numbers = [NUMBER.split(written[value])[1::2] for value in values]
        varying = [at for at, column in enumerate(zip(*numbers, strict=True)) if len(set(column)) > 1]
        if len(varying) == 1:
            (at,) = varying
            around = _around(words, numbers[0], at)
            places |= {value: (around, float(row[at])) for value, row in zip(values, numbers, strict=True)}
    return places


def _written(key: str, value: str) -> str:
    """A value; objectives with their weights, so that `virt` and `0.1 * virt` differ in a number."""
    if key != OBJECTIVE:
        return value
    try:
        return " + ".join(f"{weight!r} * {objective}" for weight, objective in map(parse, split_outside(value, "+")))
    except LimbeckError:
        return value


def _around(words: Sequence[str], numbers: Sequence[str], hole: int) -> str:
    """The words, with a hole for the number; weights of 1 are not written."""
    filled = [HOLE if at == hole else number for at, number in enumerate(numbers)]
    text = "".join(part for pair in zip(words, [*filled, ""], strict=True) for part in pair)
    return re.sub(r"(?<![\d.])1\.0 \* ", "", text)
