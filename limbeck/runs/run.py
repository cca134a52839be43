"""From a recipe to a student: the whole job, resumable at any point."""

from __future__ import annotations

import json
import platform
import shutil
import time
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from limbeck import __version__
from limbeck.data import PairData
from limbeck.data import load as load_data
from limbeck.errors import LimbeckError, bad_input
from limbeck.files import alone_in, recover_directory
from limbeck.matchers import Matcher
from limbeck.matchers import load as load_matcher
from limbeck.matchers.base import weights_digest
from limbeck.matchers.device import chosen_device
from limbeck.matchers.device_choice import restoring_device, use_recipe_device
from limbeck.progress import say
from limbeck.recipe.files import load_recipe, write_recipe
from limbeck.recipe.recipe import Recipe
from limbeck.report.run import run_report
from limbeck.runs.analyse import Analyst, analyse_axis
from limbeck.runs.base_session import BaseSession
from limbeck.runs.cautions import cautions
from limbeck.runs.measured import once
from limbeck.runs.pair_classes import with_classes
from limbeck.runs.pair_results import PairBench
from limbeck.runs.pair_session import PairSession
from limbeck.runs.references import measure_references
from limbeck.runs.results import Bench, Measured, ResultRow, finish, rows_as_json
from limbeck.runs.session import Session
from limbeck.runs.train_student import train_student
from limbeck.sealed import read_sealed, write_sealed
from limbeck.training.processes import is_main, main_first, start_processes

METRICS = "metrics.json"
STUDENTS = "students"  # in a sweep's directory


@dataclass(frozen=True)
class Result:
    """A finished run."""

    folder: Path
    rows: list[ResultRow]
    seconds: float
    warnings: list[str] = field(default_factory=list)  # what the rows do not say by themselves

    @property
    def student(self) -> Matcher:
        """The student, loaded from the run's folder."""
        return load_matcher(self.folder / "student")

    @property
    def report(self) -> Path:
        return self.folder / "report.html"


@restoring_device
def distill(
    recipe: str | Path | dict[str, Any] | Recipe, out: str | Path | None = None, overrides: list[str] | None = None
) -> Result:
    """Run a recipe. Killed at any point and called again, it goes on where it was; a finished run is returned as is."""
    resolved = load_recipe(recipe, overrides)
    use_recipe_device(resolved.device)
    chosen_device()  # one that does not exist is refused before anything is written
    start_processes()
    checked = with_classes(resolved)
    folder = Path(out) if out is not None else Path("runs") / checked.name
    if (folder / STUDENTS).exists():
        raise LimbeckError(f"{folder}: holds a sweep; choose another --out")
    claim_folder(folder, checked)
    if (folder / METRICS).exists():
        return finished_run(folder)
    with alone_in(folder) if is_main() else nullcontext():
        began = time.monotonic()
        session = open_session(checked, folder)
        if not session.has_test:
            say(f"{session.data.name}: {session.no_test()}, so the student will not be measured")
        student = train_student(session, checked, "student", folder / "student")
        with main_first() as main:  # one process measures: the others would be timed against each other
            if main:
                measured = measure_run(session, student, session.work / "measured") if session.has_test else []
                rows = [one.row for one in measured]
                if measured and isinstance(session, Session):
                    Analyst(session, measured, folder).run(checked.evaluation.analyses)
                    own = [one for one in measured if one.row.kind == "student"]
                    analyse_axis(folder, [], [({}, checked.seed, one) for one in own], measured)
                notes = [*session.warnings, *cautions(measured)]
                write_results(session, folder, rows, time.monotonic() - began, title=checked.name, warnings=notes)
        return read_results(folder)


def finished_run(folder: Path) -> Result:
    """A run that was done before; a report that a kill left out is made now."""
    say(f"{folder}: this run is finished already")
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
    """Make `folder` this recipe's run directory, or refuse if it is another's."""
    place = folder / "recipe.yaml"
    if folder.exists() and not folder.is_dir():
        raise LimbeckError(f"{folder}: is a file; choose another --out")
    with main_first():
        recover_directory(place)
        left = [path.name for path in folder.iterdir()] if folder.exists() else []
        if left == ["recipe.yaml"]:  # nothing has been done yet: a mistake may be mended
            write_recipe(recipe, place)
        elif place.exists():
            # Without the device: a run may go on elsewhere.
            theirs, ours = (each.model_dump(mode="json", exclude={"device"}) for each in (load_recipe(place), recipe))
            difference = _difference(theirs, ours)
            if difference:
                key, theirs, ours = difference
                values = f"{key} is {json.dumps(theirs)} there and {json.dumps(ours)} here"
                remedy = f"choose another --out, remove it, or go on with it by --set {key}=..."
                raise LimbeckError(f"{folder}: holds a run of another recipe ({values}); {remedy}")
        elif left:
            raise LimbeckError(f"{folder}: is not empty and holds no run; choose another --out")
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


def open_session(recipe: Recipe, folder: Path) -> BaseSession:
    """A session for what the recipe's data are: rankings or pairs."""
    pairs = isinstance(load_data(recipe.data.source), PairData)
    return PairSession(recipe, folder) if pairs else Session(recipe, folder)


def bench_of(session: BaseSession) -> Bench | PairBench:
    if isinstance(session, PairSession):
        return PairBench(session)
    assert isinstance(session, Session)
    return Bench(session)


def measure_run(session: BaseSession, student: Matcher, place: Path | None = None) -> list[Measured]:
    """Everything in a single run's table: teacher, baselines, student. What lies in `place` is not measured again."""
    bench = cache(lambda: bench_of(session))
    objectives = " + ".join(text for stage in session.recipe.stages for text in stage.objectives)

    def measure() -> Measured:
        return bench().model("student", "student", student, objectives)

    references = measure_references(session, bench, place)
    own = once(place / "student", measure, weights_digest(student)) if place is not None else measure()
    return finish([*references.values(), own])


def write_results(
    session: BaseSession,
    folder: Path,
    rows: list[ResultRow],
    seconds: float,
    title: str,
    note: str = "",
    sweep: dict[str, Any] | None = None,
    warnings: Sequence[str] = (),
) -> None:
    """`metrics.json` and `report.html`; unfinished work is no longer needed. `sweep` is the plan of one."""
    metrics = {
        "title": title,
        "data": {"name": session.data.name, **session.facts()},
        "task": session.recipe.evaluation.task if session.ranks else "pairs",
        "rows": rows_as_json(rows),
        "seconds": seconds,
        "versions": versions(),
        "note": note,
        "warnings": list(warnings),
        "sweep": sweep,
    }
    write_sealed(folder / METRICS, metrics)
    run_report(folder)
    shutil.rmtree(session.work, ignore_errors=True)


def versions() -> dict[str, str]:
    """What produced the numbers."""
    packages = ("torch", "transformers", "sentence-transformers", "numpy")
    return {"limbeck": __version__, "python": platform.python_version(), **{name: version(name) for name in packages}}
