"""From a recipe to a student: the whole job, resumable at any point."""

from __future__ import annotations

import time
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

from limbeck.errors import LimbeckError
from limbeck.files import alone_in
from limbeck.matchers import Matcher
from limbeck.matchers.base import weights_digest
from limbeck.matchers.device import chosen_device
from limbeck.matchers.device_choice import restoring_device, use_recipe_device
from limbeck.progress import say
from limbeck.recipe.files import load_recipe
from limbeck.recipe.recipe import Recipe
from limbeck.runs.finish_run import Trained, finish_run
from limbeck.runs.measured import once
from limbeck.runs.open_task import open_task
from limbeck.runs.pair_classes import with_classes
from limbeck.runs.references import measure_references
from limbeck.runs.run_folder import METRICS, STUDENTS, Result, claim_folder, finished_run, read_results
from limbeck.runs.student_card import KeptStudent
from limbeck.runs.task import Task
from limbeck.runs.train_student import train_student
from limbeck.training.processes import is_main, main_first, start_processes


@restoring_device
def distill(
    recipe: str | Path | dict[str, Any] | Recipe, out: str | Path | None = None, overrides: list[str] | None = None
) -> Result:
    """Run a recipe. After a kill, call it again to resume; a finished run is returned as is."""
    resolved = load_recipe(recipe, overrides)
    use_recipe_device(resolved.device)
    chosen_device()  # refuse an unknown device before anything is written
    start_processes()
    checked = with_classes(resolved)
    folder = Path(out) if out is not None else Path("runs") / checked.name
    if (folder / STUDENTS).exists():
        raise LimbeckError(f"{folder}: contains a sweep; choose another --out")
    claim_folder(folder, checked)
    if (folder / METRICS).exists():
        return finished_run(folder)
    with alone_in(folder) if is_main() else nullcontext():
        began = time.monotonic()
        task = open_task(checked, folder)
        if not task.has_test:
            say(f"{task.data.name}: {task.no_test()}, so the student will not be measured")
        student = train_student(task, checked, "student", folder / "student")
        with main_first() as main:  # one process measures: others would disturb the timing
            if main:
                finish_run(checked, folder, _measured(task, student), began)
        return read_results(folder)


def _measured(task: Task, student: Matcher) -> Trained:
    """Measure teacher, baselines and student on the test examples; earlier measurements of a killed run are reused."""
    recipe, place = task.recipe, task.work / "measured"
    kept = KeptStudent("student", recipe, task)
    if not task.has_test:
        return Trained([task], [], [], [], kept)
    references = list(measure_references(task, place).values())
    own = once(
        place / "student",
        lambda: task.measure_student("student", student, recipe),
        task.result_type,
        weights_digest(student),
    )
    own = replace(own, model=task.folder / "student")
    return Trained([task], references, [own], [({}, recipe.seed, own)], kept)
