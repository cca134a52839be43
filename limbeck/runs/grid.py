"""The grid of a sweep: its recipes and their names.

An axis is `KEY=A,B,C`: a key of the recipe and its values. Three keys are shortcuts: `objective` is the objective of
the last stage (`softmax_ce + 0.1 * one_hot` is two objectives); `objective.tau` is an argument of it, ignored by
objectives without that argument; and `variant` is another student, with its own stages if it needs them, given by a
shipped name or a file.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

from limbeck.errors import LimbeckError, did_you_mean
from limbeck.files import digest, slug
from limbeck.objectives import parse
from limbeck.objectives.names import argument_names, with_argument
from limbeck.recipe.files import hint_at_new_names, load_recipe, of_kind, parse_recipe, set_value, vary
from limbeck.recipe.recipe import Recipe

OBJECTIVE, VARIANT, KIND = "objective", "variant", "student.kind"
WHOLE = {VARIANT: 0, OBJECTIVE: 1, KIND: 2}  # applied first: they replace parts that contain other keys
BRACKETS = {"(": ")", "[": "]", "{": "}"}


@dataclass(frozen=True)
class Axis:
    """A key of the recipe and its values, as strings."""

    key: str
    values: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.key}={','.join(self.values)}"


@dataclass(frozen=True)
class Cell:
    """One point of the grid: the values of all axes, and the resulting recipe."""

    name: str  # a unique name, without arguments that its objectives do not have
    recipe: Recipe
    full_name: str  # includes the values of all axes that change
    settings: dict[str, str] = field(default_factory=dict)

    @property
    def folder(self) -> str:
        """A directory name; the digest distinguishes names that differ only in punctuation."""
        return f"{slug(self.full_name)[:60]}-{digest(self.full_name)[:6]}"

    def with_seed(self, seed: int) -> Recipe:
        """The recipe with another seed for the student only: its queries and its teacher are shared by the grid."""
        recipe = self.recipe
        data = recipe.data.model_copy(update={"seed": recipe.data_seed})
        teacher = recipe.teacher and recipe.teacher.model_copy(update={"seed": recipe.teacher_seed})
        return recipe.model_copy(update={"seed": seed, "data": data, "teacher": teacher})


def parse_axis(text: str, option: str = "--over") -> Axis:
    """`KEY=A,B,C`; commas inside brackets or quotes do not separate."""
    key, separator, listed = text.partition("=")
    values = tuple(split_outside(listed, ","))
    if not separator or not key.strip() or not all(values):
        raise LimbeckError(f"{option} {text}: not of the form KEY=A,B,C; e.g. {option} student.dim=64,128")
    repeated = next((value for value, count in Counter(values).items() if count > 1), None)
    if repeated is not None:
        raise LimbeckError(f"{option} {text}: {repeated} is there twice; drop one")
    hint_at_new_names(key.strip().split("."), f"{option} {key.strip()}")
    return Axis(key.strip(), values)


def split_outside(text: str, separator: str) -> list[str]:
    """The parts of `text` between separators outside brackets and quotes, without surrounding spaces."""
    parts, open_ones = [""], list[str]()
    for character in text:
        if open_ones and character == open_ones[-1]:
            open_ones.pop()
        elif character in "'\"" and not (open_ones and open_ones[-1] in "'\""):
            open_ones.append(character)
        elif character in BRACKETS and not (open_ones and open_ones[-1] in "'\""):
            open_ones.append(BRACKETS[character])
        elif character == separator and not open_ones:
            parts.append("")
            continue
        parts[-1] += character
    return [part.strip() for part in parts]


def cells(recipe: Recipe, axes: Sequence[Axis], within: Cell | None = None) -> list[Cell]:
    """Every combination of the axes' values, validated; combinations that give the same recipe count once.

    Their names begin with the name of the cell that contains them. Without axes there is one cell, named after that
    cell or after the recipe.
    """
    base, option = recipe.model_dump(mode="json"), "--over" if within is None else "--tune"
    prefix, full_prefix = (within.name, within.full_name) if within is not None else ("", "")
    known: dict[str, Cell] = {}
    for chosen in product(*(axis.values for axis in axes)):
        settings = list(zip((axis.key for axis in axes), chosen, strict=True))
        values = base
        for key, value in sorted(settings, key=lambda setting: WHOLE.get(setting[0], len(WHOLE))):
            values = _set(values, key, value, option)
        place = " ".join(f"{option} {key}={value}" for key, value in settings) or "recipe"
        parsed = parse_recipe(values, place, fallback=f"give {option} a value that the key can have")
        full_name = _joined(full_prefix, *_words(settings, axes)) or recipe.name
        name = _joined(prefix, *_words(_applying(settings, parsed), axes)) or recipe.name
        known.setdefault(parsed.model_dump_json(), Cell(name, parsed, full_name, dict(settings)))
    return list(known.values())


def load_base(source: str | Path | dict[str, Any] | Recipe, overrides: Sequence[str], axes: Sequence[Axis]) -> Recipe:
    """The recipe that the axes change. If it is invalid by itself, the first values of the axes are applied: a value
    that an axis replaces need not fit the rest.
    """
    try:
        return load_recipe(source, list(overrides))
    except LimbeckError as error:
        try:
            return load_recipe(source, [*overrides, *_first_values(axes)])
        except LimbeckError:
            raise error from None


def _first_values(axes: Sequence[Axis]) -> Iterator[str]:
    """The settings as overrides, without a variant and objective arguments, which depend on the recipe."""
    for axis in axes:
        if axis.key == OBJECTIVE:
            yield f"stages.-1.objectives={json.dumps(split_outside(axis.values[0], '+'))}"
        elif axis.key != VARIANT and not axis.key.startswith(f"{OBJECTIVE}."):
            yield f"{axis.key}={axis.values[0]}"


def refuse_repeated(axes: Sequence[Axis]) -> None:
    """Refuse a key in two axes: the later one would undo the earlier."""
    repeated = next((key for key, count in Counter(axis.key for axis in axes).items() if count > 1), None)
    if repeated is not None:
        raise LimbeckError(f"{repeated}: is named twice in --over and --tune; give all its values in one option")


def refuse_unused(axes: Sequence[Axis], grid: Sequence[Cell]) -> None:
    """Refuse axes without effect: `device`, and `objective.NAME` if no objective has such an argument."""
    if any(axis.key == "device" for axis in axes):
        raise LimbeckError("device: cannot vary, because a sweep runs on one device; use --device")
    objectives = [text for cell in grid for text in _last_objectives(cell.recipe)]
    known = sorted({name for text in objectives for name in argument_names(parse(text)[1])})
    for axis in axes:
        name = axis.key.removeprefix(f"{OBJECTIVE}.")
        if name != axis.key and name not in known:
            problem = f"{axis.key}: no objective here has {name!r}"
            raise LimbeckError(f"{problem}; {did_you_mean(name, known) if known else 'they have no settings'}")


def _last_objectives(recipe: Recipe) -> list[str]:
    """The objectives of the last stage, which `objective` varies; empty if nothing is trained."""
    return recipe.stages[-1].objectives if recipe.stages else []


def _joined(*parts: str) -> str:
    return ", ".join(part for part in parts if part)


def _applying(settings: Iterable[tuple[str, str]], recipe: Recipe) -> list[tuple[str, str]]:
    """The settings without arguments that no objective of the recipe has."""
    known = {name for text in _last_objectives(recipe) for name in argument_names(parse(text)[1])}
    ours = f"{OBJECTIVE}."
    return [(key, value) for key, value in settings if not key.startswith(ours) or key.removeprefix(ours) in known]


def _words(settings: Iterable[tuple[str, str]], axes: Sequence[Axis]) -> Iterator[str]:
    """Short names of settings: an objective itself, otherwise the last part of the key if it is unambiguous.

    Values that never change are left out, unless there is nothing else.
    """
    last = Counter(axis.key.rpartition(".")[2] for axis in axes)
    changing = {axis.key for axis in axes if len(axis.values) > 1} or {axis.key for axis in axes}
    for key, value in settings:
        if key not in changing:
            continue
        short = key.rpartition(".")[2]
        if key == VARIANT:
            yield Path(value).stem
            continue
        yield value if key == OBJECTIVE else f"{short if last[short] == 1 else key}={value}"


def _set(values: dict[str, Any], key: str, value: str, option: str) -> dict[str, Any]:
    if key == OBJECTIVE:
        copy = deepcopy(values)
        if not copy["stages"]:
            raise LimbeckError(f"{option}: the recipe has no stage whose objectives could vary; add one")
        copy["stages"][-1]["objectives"] = split_outside(value, "+")
        return copy
    if key == VARIANT:
        return vary(values, value)
    if key == KIND:
        return values | {"student": of_kind(values["student"], value)}
    if key.startswith(f"{OBJECTIVE}."):
        copy = deepcopy(values)
        argument = key.removeprefix(f"{OBJECTIVE}.")
        stage = copy["stages"][-1]
        try:
            stage["objectives"] = [with_argument(text, argument, value) for text in stage["objectives"]]
        except LimbeckError as error:
            raise LimbeckError(f"{option} {key}={value}: {error}") from error
        return copy
    return set_value(values, f"{key}={value}", option)
