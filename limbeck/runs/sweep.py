"""A grid of runs: every combination of some settings, several seeds, one table with significance.

    sweep("defense-laptop", over=["objective=one_hot,softmax_ce", "student.dim=64,128"], seeds=3)

A sweep's directory is like a run's, with more than one student:

    students/NAME/seed-0/    one run: recipe.yaml, student/, result.json
    student/                 the best student on dev

Runs with the same data and teacher share both: a teacher is trained once and scores a pair once. A finished run is
not repeated, so an interrupted sweep can continue, and a sweep with more values or seeds runs only the new ones. A
run that fails is named in the table and tried again the next time; the others continue.
"""

from __future__ import annotations

import json
import shlex
import shutil
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from limbeck.errors import LimbeckError, did_you_mean
from limbeck.files import alone_in, read_json, write_json
from limbeck.matchers.device import chosen_device
from limbeck.matchers.device_choice import restoring_device, use_recipe_device
from limbeck.progress import say
from limbeck.recipe.recipe import Recipe
from limbeck.runs.cell_runs import CellRuns, shared_part
from limbeck.runs.finish_run import Trained, answer_questions, finish_run
from limbeck.runs.grid import Axis, Cell, cells, load_base, parse_axis, refuse_repeated, refuse_unused
from limbeck.runs.pair_classes import with_classes
from limbeck.runs.results import Measured
from limbeck.runs.run_folder import METRICS, STUDENTS, Result, claim_folder, finished_run, read_results

PLAN = "sweep.json"
MEASURED = "measured.json"


@restoring_device
def sweep(
    recipe: str | Path | dict[str, Any] | Recipe,
    over: Sequence[str | Axis] = (),
    tune: Sequence[str | Axis] = (),
    seeds: int = 1,
    out: str | Path | None = None,
    against: str | None = None,
    overrides: Sequence[str] = (),
    questions: Sequence[str] = (),
    note: str = "",
    keep: bool = True,
) -> Result:
    """Run the grid of `over` with `seeds` seeds, and combine the results.

    `tune` spans an inner grid in every cell: its values are tried with the first seed, the best on dev is chosen, and
    only that one is run with all seeds and measured on test. `against` names the cell that the others are tested
    against, by default the first. The best cell on dev answers `questions`, for the report. Without `keep`, the
    students' weights are deleted after they are measured, except the best one's.
    """
    axes = [axis if isinstance(axis, Axis) else parse_axis(axis) for axis in over]
    tuned = [axis if isinstance(axis, Axis) else parse_axis(axis, "--tune") for axis in tune]
    refuse_repeated([*axes, *tuned])
    base = load_base(recipe, overrides, [*axes, *tuned])
    use_recipe_device(base.device)
    chosen_device()  # refuse an unknown device before anything is written
    grid = [replace(cell, recipe=with_classes(cell.recipe)) for cell in cells(base, axes)]
    refuse_unused([*axes, *tuned], grid)
    tries = {cell.name: cells(cell.recipe, tuned, cell) for cell in grid}
    tries = {name: [replace(one, recipe=with_classes(one.recipe)) for one in some] for name, some in tries.items()}
    reference = _reference([cell.name for cell in grid], against)
    if seeds < 1:
        raise LimbeckError(f"{seeds} seeds are too few; give 1 or more")
    folder = _place_for(out, base)
    plan = {"over": [asdict(axis) for axis in axes], "tune": [asdict(axis) for axis in tuned], "seeds": seeds}
    plan = json.loads(json.dumps(plan | {"against": reference}))
    if _is_finished(folder, plan):
        return finished_run(folder)
    began = time.monotonic()
    work = CellRuns(base, folder, [base.seed + number for number in range(seeds)], several=_differ(tries))
    for cell in [tried for some in tries.values() for tried in some]:
        work.check(cell, tuned=len(tuned) > 0)
    claim_folder(folder, base)  # only now, so that a mistake leaves no folder behind
    with alone_in(folder):
        for task in work.tasks.values():
            task.folder.mkdir(parents=True, exist_ok=True)
        measured: list[Measured] = []
        for number, cell in enumerate(grid, start=1):
            say(f"{number} of {len(grid)}: {cell.name}")
            found = work.cell(cell, tries[cell.name])
            measured += [] if found is None else [found]
        if not measured:
            raise LimbeckError(f"every run failed, the first with: {work.errors[0]}; fix it and run again")
        work.keep_best()
        references = work.references()
        if reference in work.lost:
            untested = f"{reference} failed, so there is no comparison with it."
            say(untested)
            note, plan = f"{note} {untested}".strip(), plan | {"against_failed": True}
        answer_questions(work.home, folder, work.kept.name, work.best, questions)
        told = plan | {"command": _command(recipe, overrides, axes, tuned, seeds, against, folder, keep)}
        trained = Trained(work.used, references, measured, work.points, work.kept, work.lost)
        result = finish_run(base, folder, trained, began, axes, reference, note, told)
        for task in work.tasks.values():
            shutil.rmtree(task.work, ignore_errors=True)
        write_json(folder / MEASURED, work.places())
        write_json(folder / PLAN, plan)  # last: a plan with older results would look finished
        if not keep:
            work.drop_students()
        return result


def _place_for(out: str | Path | None, base: Recipe) -> Path:
    """The sweep's directory, which may exist if it belongs to the same recipe."""
    folder = Path(out) if out is not None else Path("runs") / f"{base.name}-sweep"
    if (folder / METRICS).exists() and not (folder / STUDENTS).exists():
        raise LimbeckError(f"{folder}: contains a run of `limbeck distill`; choose another --out")
    if folder.exists():
        claim_folder(folder, base)
    return folder


def _command(
    recipe: str | Path | dict[str, Any] | Recipe,
    overrides: Sequence[str],
    axes: Sequence[Axis],
    tuned: Sequence[Axis],
    seeds: int,
    against: str | None,
    folder: Path,
    keep: bool,
) -> str:
    """The command line of a sweep; a recipe from Python is named by its file in the directory, with its overrides."""
    named = isinstance(recipe, str | Path)
    options = [("--set", text) for text in overrides if named]
    options += [("--over", str(axis)) for axis in axes] + [("--tune", str(axis)) for axis in tuned]
    options += [("--seeds", str(seeds))] + ([("--against", against)] if against is not None else [])
    words = ["limbeck", "sweep", str(recipe) if named else str(folder / "recipe.yaml")]
    words += [word for option in options for word in option] + ["--out", str(folder)]
    return shlex.join(words + ([] if keep else ["--drop-students"]))


def _is_finished(folder: Path, plan: dict[str, Any]) -> bool:
    """Whether this grid is finished and no run of it failed."""
    if not all((folder / name).exists() for name in (METRICS, MEASURED, PLAN)) or read_json(folder / PLAN) != plan:
        return False
    return not any(row.failed for row in read_results(folder).rows)


def _reference(names: list[str], against: str | None) -> str:
    if against is None:
        return names[0]
    if against not in names:
        raise LimbeckError(f"--against {against}: this sweep has no such row; {did_you_mean(against, names)}")
    return against


def _differ(tries: dict[str, list[Cell]]) -> bool:
    return len({shared_part(cell.recipe) for some in tries.values() for cell in some}) > 1
