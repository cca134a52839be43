"""The end of a run or a sweep: compare the rows, analyse, answer questions, warn, write."""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from limbeck.files import write_json
from limbeck.matchers import Matcher
from limbeck.recipe.recipe import Recipe
from limbeck.runs.analyse import analyse_axis
from limbeck.runs.cautions import cautions
from limbeck.runs.grid import Axis
from limbeck.runs.results import Measured, ResultRow, finish
from limbeck.runs.run_folder import Result, write_results
from limbeck.runs.student_card import KeptStudent, write_card
from limbeck.runs.task import Task
from limbeck.runs.teacher_step import prepare_teacher


@dataclass(frozen=True)
class Trained:
    """The results of a run, or of the runs of a sweep. A single run is a grid of one."""

    tasks: Sequence[Task]  # tasks of the students; the report is about the first
    references: Sequence[Measured]
    students: Sequence[Measured]
    points: Sequence[tuple[dict[str, str], int, Measured]]  # a student's settings, seed and result
    kept: KeptStudent  # the one in student/
    lost: Mapping[str, list[str]] = field(default_factory=dict)  # settings that failed with every seed, and why


def finish_run(
    recipe: Recipe,
    folder: Path,
    trained: Trained,
    began: float,
    axes: Sequence[Axis] = (),
    against: str | None = None,
    note: str = "",
    sweep: dict[str, Any] | None = None,
) -> Result:
    """Write the student's card, the table, the analyses and the report, and remove unfinished work.

    `against` names the row that students are tested against, by default the teacher's; `sweep` is the plan of a sweep.
    """
    home = trained.tasks[0]
    finished = finish([*trained.references, *trained.students], against)
    if finished:
        home.analyse(finished, folder, recipe.evaluation.analyses)
    analyse_axis(folder, axes, trained.points, finished)
    rows = [one.row for one in finished]
    rows += [ResultRow(name, "student", {}, runs=0, failed=errors) for name, errors in trained.lost.items()]
    warnings = [*dict.fromkeys(line for task in trained.tasks for line in task.warnings), *cautions(finished)]
    write_card(folder / "student", trained.kept, rows, warnings)
    seconds = time.monotonic() - began
    write_results(home, folder, rows, seconds, recipe.name, note, sweep, warnings)
    for task in trained.tasks:
        shutil.rmtree(task.work, ignore_errors=True)
    return Result(folder, rows, seconds, warnings)


def answer_questions(task: Task, folder: Path, name: str, student: Matcher, questions: Sequence[str]) -> None:
    """Store the answers of teacher and student, for the report."""
    teacher = prepare_teacher(task) if questions else None
    if teacher is not None and (found := task.answer(teacher, name, student, questions)):
        write_json(folder / "examples.json", found)
