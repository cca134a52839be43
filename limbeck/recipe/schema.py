"""The keys of a recipe: as a JSON schema for editors, and as a page for people. Both come from the typed models."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from limbeck.matchers.config import MatcherConfig, architectures
from limbeck.recipe.data_spec import DataSpec
from limbeck.recipe.evaluation_spec import EvaluationSpec
from limbeck.recipe.recipe import Recipe
from limbeck.recipe.stage import ListSpec, Stage
from limbeck.recipe.teacher_spec import TeacherSpec
from limbeck.report.analyses.registry import requested

INTRODUCTION = """# The keys of a recipe

A recipe is one YAML file. `limbeck recipes --schema` prints the same as a JSON schema, which editors use to complete
and check keys as you type. This page is made by `limbeck recipes --keys`.
"""


def recipe_schema() -> dict[str, Any]:
    """The JSON schema of a recipe."""
    return Recipe.model_json_schema()


def keys_page() -> str:
    """All keys with their types, defaults and meaning, as Markdown."""
    return "\n".join([INTRODUCTION, *_sections()]).rstrip() + "\n"


def _sections() -> Iterator[str]:
    yield from _section("The recipe", Recipe)
    yield from _section("`data`", DataSpec)
    yield from _section("`teacher`", TeacherSpec)
    yield "## `student` and `teacher.train`\n"
    yield "Matchers of all kinds have these keys; `kind` decides which others there are.\n"
    yield from _table(MatcherConfig, set())
    for kind, found in architectures().items():
        yield f"### `kind: {kind}`\n"
        yield _first_line(found.config_type) + "\n"
        yield from _table(found.config_type, set(MatcherConfig.model_fields))
    yield from _section("`stages`, a list", Stage)
    yield from _section("`stages.N.lists`", ListSpec)
    yield from _section("`evaluation`", EvaluationSpec)
    yield from _analyses()


def _analyses() -> Iterator[str]:
    yield "### `evaluation.analyses`\n"
    yield "Analyses in the report of a run on rankings; `limbeck report RUN --add NAME` adds one later.\n"
    yield "| name | what it shows | by default |\n|---|---|---|"
    for name, found in requested().items():
        yield f"| `{name}` | {found.about} | {'yes' if found.by_default else 'no'} |"


def _section(title: str, model: type[BaseModel]) -> Iterator[str]:
    yield f"## {title}\n"
    yield _first_line(model) + "\n"
    yield from _table(model, set())


def _first_line(model: type[BaseModel]) -> str:
    return (model.__doc__ or "").strip().splitlines()[0]


def _table(model: type[BaseModel], without: set[str]) -> Iterator[str]:
    yield "| key | type | default | what it does |\n|---|---|---|---|"
    for name, field in model.model_fields.items():
        if name not in without:
            cells = (f"`{name}`", _type(field.annotation), _default(field), field.description or "")
            yield f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"
    yield ""


def _type(annotation: Any) -> str:
    """A type in the words of YAML."""
    text = annotation.__name__ if isinstance(annotation, type) else str(annotation)
    text = re.sub(r"Annotated\[str,.*?_Names'>\]", "name", text)
    text = re.sub(r"\b(typing|pathlib|limbeck|pydantic)(\.\w+)*\.", "", text)
    text = re.sub(r"Literal\[([^\]]*)\]", lambda found: found[1].replace("'", "").replace(", ", " or "), text)
    text = re.sub(r"Optional\[Annotated.*", "a matcher | None", re.sub(r"^Annotated.*", "a matcher", text))
    text = re.sub(r"\blist\[(Stage)\]", "list of mappings", re.sub(r"\b\w+Spec\b", "mapping", text))
    words = {"str": "text", "int": "whole number", "float": "number", "bool": "true or false", "NoneType": "null"}
    words |= {"None": "null", "dict": "mapping", "MatcherConfig": "a matcher", "tuple": "list", " | ": " or "}
    for old, new in words.items():
        text = text.replace(old, new) if old == " | " else re.sub(rf"\b{old}\b", new, text)
    return text.replace(", ...", "")


def _default(field: Any) -> str:
    if field.default_factory is not None:
        return ""
    if field.default is PydanticUndefined:
        return "required"
    if isinstance(field.default, BaseModel) or field.default == "":
        return ""
    shown = {None: "null", True: "true", False: "false"}
    plain = field.default if not isinstance(field.default, tuple) else list(field.default)
    return f"`{shown[plain]}`" if plain is None or isinstance(plain, bool) else f"`{plain}`"
