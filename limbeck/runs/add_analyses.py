"""Add analyses to a finished run or sweep, from its files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from limbeck.errors import LimbeckError, bad_input, did_you_mean
from limbeck.files import read_json
from limbeck.matchers import load as load_matcher
from limbeck.matchers.device_choice import restoring_device, use_recipe_device
from limbeck.recipe.files import load_recipe
from limbeck.report.analyses.registry import analyses, requested
from limbeck.runs.measured import read_measured
from limbeck.runs.open_task import open_task
from limbeck.runs.references import measure_references
from limbeck.runs.results import Measured, finish, over_seeds
from limbeck.runs.run_folder import METRICS, read_results
from limbeck.runs.sweep import MEASURED, PLAN
from limbeck.runs.task import Task

CHANGEABLE = {  # keys, and the analysis that reads each
    "evaluation.rank_queries": "rank",
    "evaluation.rank_documents": "rank",
    "evaluation.attention_layer": "attention_maps",
}


@restoring_device
def add_analyses(folder: Path, names: Sequence[str], overrides: Sequence[str] = ()) -> None:
    """Compute analyses and store them with the run; if one lacks its input, that is an error.

    `overrides` change the size of the matrix for `rank` or the layer of `attention_maps`, KEY=VALUE; nothing is
    trained or measured again.
    """
    for override in overrides:
        key = override.partition("=")[0]
        if CHANGEABLE.get(key) not in names:
            problem = f"--set {override}: for a finished run you can only change {' or '.join(CHANGEABLE)}"
            remedy = f"give {key} with --add {CHANGEABLE[key]}" if key in CHANGEABLE else "give one of them"
            raise LimbeckError(f"{problem}; {remedy}")
    for name in names:
        _check_name(name)
    if not (folder / METRICS).exists():
        raise bad_input(folder, "contains no finished run", "name the directory that `limbeck distill --out` wrote")
    recipe = load_recipe(folder / "recipe.yaml", list(overrides))
    use_recipe_device(recipe.device)
    task = open_task(recipe, folder)
    task.refuse_analyses(folder, names)
    if (folder / "shared").is_dir():
        raise LimbeckError(
            f"{folder}: is a sweep over data or teachers, but an analysis needs one of each; sweep them separately"
        )
    if not task.has_test:
        raise LimbeckError(f"{folder}: analyses require labelled test queries, and its data has none; give data.test")
    swept = (folder / PLAN).exists()
    task.analyse(_swept(task, folder) if swept else _measured(task, folder), folder, names, strict=True)


def _check_name(name: str) -> None:
    found = analyses().get(name)
    if found is None:
        raise LimbeckError(f"--add {name}: there is no such analysis; {did_you_mean(name, list(requested()))}")
    if found.made_by:
        raise LimbeckError(f"--add {name}: cannot be added later: {found.made_by}")


def _measured(task: Task, folder: Path) -> list[Measured]:
    """The measurements of a run, made again."""
    student = task.measure_student("student", load_matcher(folder / "student"), task.recipe)
    return finish([*measure_references(task).values(), replace(student, model=folder / "student")])


def _swept(task: Task, folder: Path) -> list[Measured]:
    """The stored measurements of a sweep."""
    again = "run the same `limbeck sweep` again to write it"
    plan, places, rows = read_json(folder / PLAN), read_json(folder / MEASURED, again), read_results(folder).rows
    runs = {name: [read_measured(folder / place, task.result_type) for place in some] for name, some in places.items()}
    return finish([over_seeds(runs[row.name], row.name, []) for row in rows if row.name in runs], plan["against"])
