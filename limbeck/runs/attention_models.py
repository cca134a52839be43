"""The models and test pairs whose attention the report looks at."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from limbeck.errors import LimbeckError
from limbeck.matchers import Matcher
from limbeck.matchers import load as load_matcher
from limbeck.objectives import parse
from limbeck.objectives.attention import virt
from limbeck.report.analyses.measured_run import AttentionModels
from limbeck.runs.results import Measured
from limbeck.runs.task import Task
from limbeck.runs.teacher_step import prepare_teacher

SAMPLE = 64  # test pairs that distances are means over


def attention_models(task: Task, measured: Sequence[Measured], pairs: Sequence[tuple[str, ...]]) -> AttentionModels:
    """Teacher and students of a finished run, and some of its test `pairs`."""
    two = [(texts[0], texts[1]) for texts in pairs if len(texts) == 2]
    if not two:
        raise LimbeckError("maps of attention need test pairs of two texts; this run has none")
    every = [one for one in measured if one.row.kind == "student"]
    students = [one for one in every if one.teacher == every[0].teacher]  # a sweep may have several teachers
    kept = {one.row.name: partial(load_matcher, one.model) for one in students if one.model is not None}
    if not kept:
        raise LimbeckError("the students' weights were dropped; run the sweep without --drop-students")
    return AttentionModels(
        pairs=two[:SAMPLE],
        teacher=partial(_teacher, task),
        students=kept,
        objectives=_objectives(students),
        layer=task.recipe.evaluation.attention_layer,
    )


def _teacher(task: Task) -> Matcher:
    teacher = prepare_teacher(task)
    if teacher is None:
        raise LimbeckError("the teacher has no model to show attention; give teacher.model")
    return teacher


def _objectives(students: Sequence[Measured]) -> Mapping[str, virt]:
    """The `virt` that each student was trained with; those without have the first one's, so that rows compare."""
    own = {one.row.name: _virt(one.row.objective or "") for one in students}
    first = next((found for found in own.values() if found is not None), None)
    chosen = {name: found or first for name, found in own.items()}
    return {name: found for name, found in chosen.items() if found is not None}


def _virt(objectives: str) -> virt | None:
    found = [parse(text)[1] for text in objectives.split(" + ") if text]
    return next((each for each in found if isinstance(each, virt)), None)
