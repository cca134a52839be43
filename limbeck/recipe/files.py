"""Read and write recipes: YAML with line numbers in errors, shipped recipes by name, overrides."""

from __future__ import annotations

from collections.abc import Iterable
from copy import deepcopy
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from pydantic import BaseModel, ValidationError

from limbeck.errors import LimbeckError, bad_input, did_you_mean
from limbeck.files import reason, write_atomically
from limbeck.progress import say

if TYPE_CHECKING:
    from limbeck.recipe.recipe import Recipe


RENAMED = {
    "start": "init_from",
    "separate": "untied",
    "together": "group_by_text",
    "below_positive": "false_negative_margin",
}
SHARED = {"dropout", "outputs", "untied"}  # keys of several kinds, not of all, that mean the same in each


def shipped() -> dict[str, Path]:
    """The recipes that come with limbeck, by name."""
    folder = Path(str(files("limbeck") / "recipes"))
    return {path.stem: path for path in sorted(folder.glob("*.yaml"))}


def load_recipe(source: str | Path | dict[str, Any] | Recipe, overrides: list[str] | None = None) -> Recipe:
    """A validated recipe from a file, a shipped name, a dictionary or a recipe; `overrides` are `key.path=value`."""
    if isinstance(source, BaseModel):
        return parse_recipe(source.model_dump(mode="json"), "recipe", overrides=overrides)
    if isinstance(source, dict):
        return parse_recipe(source, "recipe", overrides=overrides)
    if not isinstance(source, str | Path):
        raise LimbeckError(
            f"a recipe is a file, a name or a dictionary, not {type(source).__name__}; give one of these"
        )
    path, values, tree = read_recipe(source)
    return parse_recipe(values, str(path), tree, overrides)


def read_recipe(source: str | Path) -> tuple[Path, dict[str, Any], yaml.Node | None]:
    """The file of a recipe, its values before validation, and its YAML tree."""
    path = Path(source)
    if str(source) in shipped() and not path.exists():
        path = shipped()[str(source)]
    remedy = did_you_mean(str(source), list(shipped())) + " (`limbeck recipes` lists what ships)"
    values, tree = _read(path, "recipe", remedy)
    if not isinstance(values, dict):
        raise bad_input(path, "is not a recipe", "a recipe is a mapping with data, student and stages")
    return path, values, tree


def variants() -> dict[str, Path]:
    """The student variants that come with limbeck, by name."""
    folder = Path(str(files("limbeck") / "recipes" / "variants"))
    return {path.stem: path for path in sorted(folder.glob("*.yaml"))}


def vary(values: dict[str, Any], source: str) -> dict[str, Any]:
    """A recipe with another student, and other stages if the variant has any. `source` is a shipped name or a file.

    The variant's values win. The recipe's student keeps all its other keys if it has the same kind; otherwise it keeps
    only the keys that kinds share (weights, layers, lengths, outputs).
    """
    path = variants()[source] if source in variants() and not Path(source).exists() else Path(source)
    changes, _ = _read(path, "variant", did_you_mean(source, list(variants())))
    wrong = sorted(set(changes) - {"student", "stages"}) if isinstance(changes, dict) else ["no mapping"]
    if wrong or not isinstance(changes.get("student", {}), dict):
        raise bad_input(path, f"is not a variant ({', '.join(wrong) or 'student'})", "give student, or stages, or both")
    copy, changes = renamed(deepcopy(values)), renamed(changes)
    student, change = copy["student"], changes.get("student", {})
    if "kind" in change:
        student = of_kind(student, change["kind"])
    return copy | changes | {"student": student | change}


def of_kind(student: dict[str, Any], kind: str) -> dict[str, Any]:
    """A student as another kind: it keeps the keys that all kinds share, and those of `SHARED` that the kind has."""
    from limbeck.matchers.config import DEFAULT_KIND, MatcherConfig, architecture_of

    if kind == student.get("kind", DEFAULT_KIND):
        return student
    stays = {*MatcherConfig.model_fields, *(SHARED & set(architecture_of(kind).config_type.model_fields))}
    return {name: value for name, value in student.items() if name in stays} | {"kind": kind}


def _read(path: Path, what: str, remedy: str) -> tuple[Any, yaml.Node | None]:
    """The values of a YAML file, and its tree, which has the line numbers."""
    if not path.is_file():
        exists = path.exists() or path.is_symlink()
        raise bad_input(path, f"is not a file with a {what}" if exists else f"no such {what}", remedy)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise bad_input(path, f"cannot be read ({reason(error)})", "give a readable YAML file") from error
    try:
        return yaml.safe_load(text), yaml.compose(text, Loader=yaml.SafeLoader)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        problem = f"is not valid YAML ({_why(error)})"
        raise bad_input(path, problem, "correct the syntax", mark.line + 1 if mark else None) from error


def _why(error: Exception) -> str:
    """Why YAML rejects a file, briefly: a bad character, a date that does not exist, a number of 5,000 digits."""
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    return str(getattr(error, "problem", None) or getattr(error, "reason", None) or error).splitlines()[0]


def parse_recipe(
    values: dict[str, Any],
    place: str,
    tree: yaml.Node | None = None,
    overrides: list[str] | None = None,
    fallback: str = "correct it in the recipe",
) -> Recipe:
    """Validate a dictionary as a recipe; the first mistake becomes a one-line error with its location.

    `fallback` is the remedy for errors that bring none.
    """
    from limbeck.recipe.recipe import Recipe

    values = renamed(values, place)
    for override in overrides or []:
        path = override.partition("=")[0]
        hint_at_new_names(path.split("."), f"--set {path}")
        values = set_value(values, override)
    try:
        _refuse_nul(values, place, set())
        return Recipe.model_validate(values)
    except RecursionError as error:
        raise bad_input(place, "is nested too deeply", fallback) from error
    except ValidationError as error:
        first = error.errors()[0]
        location = [part for part in first["loc"] if isinstance(part, int | str)]
        line = _line_of(tree, location)
        dotted = ".".join(map(str, location)) or "recipe"
        problem, remedy = _explain(first, location)
        raise bad_input(place, f"{dotted}: {problem}", remedy or fallback, line) from error


def renamed(values: Any, place: str | None = None) -> Any:
    """A recipe with old keys replaced by their new names; if `place` is given, each old key prints a hint."""
    found: set[str] = set()
    try:
        values = _renamed(values, found, {})
    except LimbeckError as error:
        raise LimbeckError(f"{place or 'recipe'}: {error}") from None
    if place is not None:
        hint_at_new_names(found, place)
    return values


def hint_at_new_names(keys: Iterable[str], place: str) -> None:
    """Print a hint for each key that has been renamed."""
    for old in sorted({*keys} & RENAMED.keys()):
        say(f"{place}: {old} is called {RENAMED[old]} now; the old name still works")


def _renamed(value: Any, found: set[str], known: dict[int, Any]) -> Any:
    """Rename keys recursively. `known` maps parts that YAML aliases share, so that each is renamed once."""
    if not isinstance(value, dict | list) or id(value) in known:
        return known.get(id(value), value)
    if isinstance(value, list):
        copy: list[Any] = []
        known[id(value)] = copy
        copy += [_renamed(part, found, known) for part in value]
        return copy
    old_ones = value.keys() & RENAMED.keys()
    for old in sorted(old_ones):
        if RENAMED[old] in value:
            raise LimbeckError(f"{old} and {RENAMED[old]} are the same key; drop {old}")
    found |= old_ones
    mapping: dict[Any, Any] = {}
    known[id(value)] = mapping
    mapping |= {RENAMED.get(key, key): _renamed(part, found, known) for key, part in value.items()}
    return mapping


def _refuse_nul(value: Any, place: str, seen: set[int]) -> None:
    """Refuse a NUL in any file name, model or text of a recipe. `seen` holds parts that YAML aliases share."""
    if isinstance(value, str) and "\0" in value:
        raise bad_input(place, f"{value.replace(chr(0), chr(92) + '0')!r} has a NUL in it", "remove it")
    if isinstance(value, dict | list) and id(value) not in seen:
        seen.add(id(value))
        for part in (*value, *value.values()) if isinstance(value, dict) else value:
            _refuse_nul(part, place, seen)


def _explain(error: Any, location: list[int | str]) -> tuple[str, str]:
    """The problem, and the remedy if there is one; our validators give both, separated by a semicolon."""
    if error["type"] == "extra_forbidden":
        return "unknown key", did_you_mean(str(location[-1]), _fields_at(location[:-1]))
    if error["type"] == "missing":
        return "is missing", "add it"
    problem, _, remedy = error["msg"].removeprefix("Value error, ").partition("; ")
    return problem, remedy


def _fields_at(location: list[int | str]) -> list[str]:
    """The keys that a recipe may have at `location`."""
    from limbeck.matchers.config import MatcherConfig, architectures
    from limbeck.recipe.recipe import Recipe

    model: Any = Recipe
    for part in location:
        if isinstance(part, int):
            continue
        model = _model_in(model.model_fields[part].annotation)
    if model is MatcherConfig:  # the kind is not known here
        return sorted({key for found in architectures().values() for key in found.config_type.model_fields})
    return list(model.model_fields)


def _model_in(annotation: Any) -> Any:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next(found for inner in getattr(annotation, "__args__", ()) if (found := _model_in(inner)) is not None)


def _line_of(tree: yaml.Node | None, location: list[int | str]) -> int | None:
    """The line of the value at `location`, or of the nearest part of the path that exists."""
    if tree is None:
        return None
    line, node = tree.start_mark.line + 1, tree
    for part in location:
        if isinstance(node, yaml.MappingNode):
            match = next((pair for pair in node.value if pair[0].value == part), None)
            if match is None:
                break
            line, node = match[0].start_mark.line + 1, match[1]
        elif isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
            node = node.value[part]
            line = node.start_mark.line + 1
        else:
            break
    return line


def set_value(values: dict[str, Any], override: str, option: str = "--set") -> dict[str, Any]:
    """Apply one `key.path=value`; the value is YAML. The given dictionary is not changed."""
    path, separator, text = override.partition("=")
    if not separator or not path:
        raise LimbeckError(f"{option} {override}: not of the form key.path=value; e.g. {option} stages.0.steps=100")
    try:
        value = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        problem = f"the value is not valid YAML ({_why(error)})"
        raise LimbeckError(f"{option} {override}: {problem}; quote it, or give another value") from error
    copy = renamed(deepcopy(values))
    keys = [RENAMED.get(key, key) for key in path.split(".")]
    target: Any = copy
    try:
        for key in keys[:-1]:
            if isinstance(target, dict):
                if target.get(key) is None:
                    target[key] = {}
                target = target[key]
            else:
                target = target[int(key)]
        if isinstance(target, dict):
            target[keys[-1]] = value
        else:
            target[int(keys[-1])] = value
    except (ValueError, IndexError, TypeError, AttributeError) as error:
        raise LimbeckError(f"{option} {override}: the recipe has no key {path}; check the path") from error
    return copy


def write_recipe(recipe: Recipe, path: str | Path) -> None:
    """Write a validated recipe with all defaults filled in."""
    with write_atomically(path, "w") as handle:
        yaml.safe_dump(recipe.model_dump(mode="json"), handle, sort_keys=False, allow_unicode=True, width=120)
