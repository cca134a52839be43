"""Why two texts match: the attention between their tokens in a model, or in a student and its teacher."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from limbeck.errors import LimbeckError
from limbeck.evaluation.attention_maps import (
    TokenMap,
    chosen_layer,
    is_virtual,
    layer_pairs,
    lengths_of,
    map_distances,
    same_tokenizer,
    token_maps,
)
from limbeck.matchers import Matcher
from limbeck.matchers import load as load_matcher
from limbeck.matchers.arguments import require_words

LINKS = 8  # the strongest ones, that are listed


@dataclass(frozen=True)
class Link:
    """A token that looks at a token of the other text."""

    source: str
    target: str
    weight: float  # share of the attention that `source` has for the other text
    forward: bool  # from the first text to the second
    place: tuple[int, int]  # of both tokens in their texts


@dataclass(frozen=True)
class View:
    """One model's reading of the pair."""

    name: str
    role: str  # "model" or "teacher"
    virtual: bool  # a map that the model itself never computes
    layer: int  # from 0
    layers: int
    scores: tuple[float, ...]  # one, or one a class
    map: TokenMap

    def links(self, most: int = LINKS) -> list[Link]:
        """The strongest links of both directions, best first."""
        found = [*self._links(self.map.there, True), *self._links(self.map.back, False)]
        return sorted(found, key=lambda link: -link.weight)[:most]

    def _links(self, values: np.ndarray, forward: bool) -> list[Link]:
        own, other = (self.map.first, self.map.second) if forward else (self.map.second, self.map.first)
        best = values.argmax(axis=1)
        return [
            Link(word, other[at], float(values[row, at]), forward, (row, int(at)))
            for row, (word, at) in enumerate(zip(own, best, strict=True))
        ]

    def weight(self, link: Link) -> float:
        """What this model gives to a link of another."""
        values = self.map.there if link.forward else self.map.back
        return float(values[link.place])

    def as_json(self) -> dict[str, Any]:
        return {
            "model": self.name,
            "virtual": self.virtual,
            "layer": self.layer,
            "layers": self.layers,
            "scores": list(self.scores),
            "share_between_texts": self.map.share,
            "first_to_second": self.map.there.tolist(),
            "second_to_first": self.map.back.tolist(),
        }


@dataclass(frozen=True)
class Inspection:
    """A pair as one model reads it, or two."""

    texts: tuple[str, str]
    views: tuple[View, ...]  # the model, then its teacher if one was given
    distance: float | None = None  # between the two maps (VIRT Eq. 4, of this layer)

    @property
    def model(self) -> View:
        return self.views[0]

    @property
    def teacher(self) -> View | None:
        return self.views[1] if len(self.views) > 1 else None

    def as_json(self) -> dict[str, Any]:
        return {
            "texts": list(self.texts),
            "tokens": [list(self.model.map.first), list(self.model.map.second)],
            "views": [view.as_json() for view in self.views],
            "distance": self.distance,
        }


def inspect_pair(
    model: str | Path | Matcher,
    first: str,
    second: str,
    teacher: str | Path | Matcher | None = None,
    layer: int | None = None,
) -> Inspection:
    """The attention between the tokens of two texts; `layer` is the model's, from 0, and its last by default."""
    require_words(first, second)
    pair = (first, second)
    student = _loaded(model)
    try:
        number = chosen_layer(student, layer, str(_name(model)))
        if teacher is None:
            lengths = None if is_virtual(student) else lengths_of(student)
            return Inspection(pair, (_view(model, "model", student, pair, number, lengths),))
        return _beside_teacher(model, student, teacher, pair, number)
    except LimbeckError as error:
        raise _named(error, _name(model)) from error


def _beside_teacher(
    model: str | Path | Matcher, student: Matcher, teacher: str | Path | Matcher, pair: tuple[str, str], layer: int
) -> Inspection:
    taught = _loaded(teacher)
    if is_virtual(taught):
        problem = f"--teacher {_name(teacher)}: is a {taught.kind}, which computes no attention between texts"
        raise LimbeckError(f"{problem}; give a cross_encoder")
    if not is_virtual(student):
        raise LimbeckError("is a cross_encoder itself; give --teacher only with a model that encodes texts apart")
    same_tokenizer(student, taught)
    other = dict(layer_pairs(student, taught))[layer]
    own = _view(model, "model", student, pair, layer, None)
    lengths = _teachers_lengths(own.map, student, taught)
    theirs = _view(teacher, "teacher", taught, pair, other, lengths)
    return Inspection(pair, (own, theirs), float(map_distances(student, taught, [pair], lengths=lengths)[0, layer]))


def _teachers_lengths(found: TokenMap, student: Matcher, teacher: Matcher) -> tuple[int, int]:
    """The teacher's own lengths, if both texts fit; otherwise it has to cut them where the student does."""
    theirs = lengths_of(teacher)
    whole = len(found.first) <= theirs[0] and len(found.second) <= theirs[1]
    return theirs if whole else lengths_of(student)


def _view(
    name: str | Path | Matcher,
    role: str,
    model: Matcher,
    pair: tuple[str, str],
    layer: int,
    lengths: tuple[int, int] | None,
) -> View:
    (found,) = token_maps(model, [pair], layer, lengths)
    if found.is_empty:
        number = 1 if not found.first else 2
        raise LimbeckError(f"text {number} has no token that the model knows; give a text with words in it")
    scores = _numbers(model.score([pair])[0])
    return View(str(_name(name)), role, is_virtual(model), layer, model.attention(0).sizes.layers, scores, found)


def _numbers(score: Any) -> tuple[float, ...]:
    values: Sequence[float] = np.atleast_1d(np.asarray(score, dtype=float)).tolist()
    return tuple(values)


def _loaded(model: str | Path | Matcher) -> Matcher:
    return load_matcher(model) if isinstance(model, str | Path) else model


def _name(model: str | Path | Matcher) -> str | Path:
    return model if isinstance(model, str | Path) else model.folder or model.kind


def _named(error: LimbeckError, name: str | Path) -> LimbeckError:
    """The error with the model's name in front, unless it has one."""
    said = str(error)
    return error if str(name) in said or said.startswith(("text ", "--")) else LimbeckError(f"{name}: {said}")
