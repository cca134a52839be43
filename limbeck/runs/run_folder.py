"""A run's directory: claim it for a recipe, write the results, read a finished one."""

from __future__ import annotations

import json
import platform
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

from limbeck import __version__
from limbeck.errors import LimbeckError, bad_input
from limbeck.files import recover_directory
from limbeck.matchers import Matcher
from limbeck.matchers import load as load_matcher
from limbeck.progress import say
from limbeck.recipe.files import load_recipe, write_recipe
from limbeck.recipe.recipe import Recipe
from limbeck.report.run import run_report
from limbeck.runs.results import ResultRow, rows_as_json
from limbeck.runs.task import Task
from limbeck.sealed import read_sealed, write_sealed
from limbeck.training.processes import main_first

METRICS = "metrics.json"
STUDENTS = "students"  # in a sweep's directory


@dataclass(frozen=True)
class Result:
    """A finished run."""

    folder: Path
    rows: list[ResultRow]
    seconds: float
    warnings: list[str] = field(default_factory=list)  # notes on the rows

    @property
    def student(self) -> Matcher:
        """The student, loaded from the run's folder."""
        return load_matcher(self.folder / "student")

    @property
    def report(self) -> Path:
        return self.folder / "report.html"


def finished_run(folder: Path) -> Result:
    """The result of a run that is finished; write its report if a kill prevented that."""
    say(f"{folder}: this run is already finished")
    result = read_results(folder)
    with main_first() as main:
        if main and not result.report.exists():
            run_report(folder)
        if main:
            shutil.rmtree(folder / "work", ignore_errors=True)
    return result


def read_results(folder: Path) -> Result:
    metrics = read_sealed(folder / METRICS)
    try:
        rows = [ResultRow(**row) for row in metrics["rows"]]
        return Result(folder, rows, float(metrics["seconds"]), list(metrics.get("warnings", [])))
    except (TypeError, KeyError, ValueError) as error:
        raise bad_input(folder / METRICS, "is not a run's result", "remove it and run the command again") from error


def claim_folder(folder: Path, recipe: Recipe) -> None:
    """Make `folder` this recipe's run directory; refuse it if it belongs to another."""
    place = folder / "recipe.yaml"
    if folder.exists() and not folder.is_dir():
        raise LimbeckError(f"{folder}: is a file; choose another --out")
    with main_first():
        recover_directory(place)
        left = [path.name for path in folder.iterdir()] if folder.exists() else []
        if left == ["recipe.yaml"]:  # nothing is done yet, so the recipe may change
            write_recipe(recipe, place)
        elif place.exists():
            # Without the device: a run may continue on another.
            theirs, ours = (each.model_dump(mode="json", exclude={"device"}) for each in (load_recipe(place), recipe))
            difference = _difference(theirs, ours)
            if difference:
                key, theirs, ours = difference
                values = f"{key} is {json.dumps(theirs)} there and {json.dumps(ours)} here"
                remedy = f"choose another --out, remove it, or resume it with --set {key}=..."
                raise LimbeckError(f"{folder}: contains a run of another recipe ({values}); {remedy}")
        elif left:
            raise LimbeckError(f"{folder}: is not empty and contains no run; choose another --out")
        else:
            write_recipe(recipe, place)


def _difference(old: Any, new: Any, place: str = "") -> tuple[str, Any, Any] | None:
    """The dotted path of the first value that differs, and both values."""
    if isinstance(old, dict) and isinstance(new, dict):
        pairs = [(key, old.get(key), new.get(key)) for key in {**old, **new}]
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        pairs = [(str(number), *both) for number, both in enumerate(zip(old, new, strict=True))]
    else:
        return None if old == new else (place, old, new)
    for key, one, other in pairs:
        found = _difference(one, other, f"{place}.{key}" if place else key)
        if found:
            return found
    return None


def write_results(
    task: Task,
    folder: Path,
    rows: list[ResultRow],
    seconds: float,
    title: str,
    note: str = "",
    sweep: dict[str, Any] | None = None,
    warnings: Sequence[str] = (),
    compression: dict[str, Any] | None = None,
) -> None:
    """Write `metrics.json` and `report.html`. `sweep` is the plan of a sweep, `compression` the choice of compress."""
    metrics = {
        "title": title,
        "data": {"name": task.data.name, **task.facts()},
        "task": task.measured_as,
        "rows": rows_as_json(rows),
        "seconds": seconds,
        "versions": versions(),
        "note": note,
        "warnings": list(warnings),
        "sweep": sweep,
    }
    metrics |= {} if compression is None else {"compression": compression}
    write_sealed(folder / METRICS, metrics)
    run_report(folder)


def versions() -> dict[str, str]:
    """The versions and settings behind the numbers."""
    packages = ("torch", "transformers", "sentence-transformers", "numpy")
    return {"limbeck": __version__, "python": platform.python_version(), **{name: version(name) for name in packages}}
