"""Analyses in a run directory: `analyses/NAME.json` contains a result, which the report turns into a section.

If an analysis was not possible, the file is `{"missing": "why"}`, so that the report can give the reason.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from limbeck.errors import LimbeckError, bad_input
from limbeck.files import read_json, write_json
from limbeck.report.analyses.base import Result
from limbeck.report.analyses.registry import Analysis, analyses
from limbeck.report.blocks import Section, Text
from limbeck.report.colours import Colours

FOLDER = "analyses"
NOT_KEPT = (
    "an earlier version measured this and kept no values of single training queries; remove metrics.json, references/ "
    "and every result.json in students/, and run the same command again: what is trained stays"
)
NOT_HERE = "an analysis from a plugin that is not loaded; give --plugin FILE to `limbeck report`"


def forget(run_dir: Path, name: str) -> None:
    """Delete a result, if there is one."""
    (run_dir / FOLDER / f"{name}.json").unlink(missing_ok=True)


def store(run_dir: Path, name: str, compute: Callable[[], Result], strict: bool = False) -> None:
    """Compute an analysis and save its result; if it fails, save the reason, or raise it if `strict`."""
    try:
        _keep(run_dir, name, compute().model_dump(mode="json"))
    except LimbeckError as error:
        if strict:
            raise
        leave_out(run_dir, name, str(error))


def leave_out(run_dir: Path, name: str, reason: str) -> None:
    """Save the reason why there is no such result."""
    _keep(run_dir, name, {"missing": reason})


def _keep(run_dir: Path, name: str, found: dict[str, Any]) -> None:
    (run_dir / FOLDER).mkdir(exist_ok=True)
    write_json(run_dir / FOLDER / f"{name}.json", found)


def stored_sections(run_dir: Path, colours: Colours | None = None) -> list[Section]:
    """The sections of all stored analyses, in the report's order; those of plugins that are not loaded come last."""
    known, shades = analyses(), colours or Colours()
    found = {path.stem: path for path in sorted((run_dir / FOLDER).glob("*.json"))}
    sections = [_section(kind, found[name], shades) for name, kind in known.items() if name in found]
    unknown = [name for name in found if name not in known]
    return [*sections, *(_left_out(name, f"{name} is {NOT_HERE}") for name in unknown)]


def _section(kind: type[Analysis], path: Path, colours: Colours) -> Section:
    """The section of a stored result, or the reason why there is none."""
    found = read_json(path)
    if isinstance(found, dict) and set(found) == {"missing"}:
        return _left_out(kind.title, found["missing"])
    if isinstance(found, dict) and kind.dropped in found:
        return _left_out(kind.title, NOT_KEPT)
    try:
        return kind.model_validate(found).section(colours)
    except ValidationError as error:
        problem = f"is not the result of an analysis ({error.errors()[0]['msg'].lower()})"
        raise bad_input(path, problem, "remove it and run `limbeck report --add` again") from error


def _left_out(title: str, reason: str) -> Section:
    return Section(title, [Text(f"Left out: {reason}.")])
