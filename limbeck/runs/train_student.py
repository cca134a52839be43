"""Train one student: cheap checks, teacher, build, gather the training data, fit, save."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from limbeck.errors import LimbeckError
from limbeck.files import digest
from limbeck.matchers import Matcher, build
from limbeck.matchers import load as load_matcher
from limbeck.recipe.recipe import Recipe
from limbeck.recipe.stage import Stage
from limbeck.report.analyses.score_distributions import SNAPSHOTS
from limbeck.runs.reference import Reference
from limbeck.runs.references import teacher_below_its_start
from limbeck.runs.student_start import check_layers, start_student, untrained_student
from limbeck.runs.task import Task
from limbeck.runs.teacher_step import has_to_be_trained, prepare_teacher
from limbeck.signals import TEXT_ATTENTION
from limbeck.training.attention import layers_shown
from limbeck.training.lists import TextLists
from limbeck.training.processes import is_main, main_first
from limbeck.training.stages import Fit, fit
from limbeck.training.targets import poor_targets
from limbeck.training.teachers import EMBEDDINGS, require_signals
from limbeck.training.trainer import keep_snapshot


def train_student(
    task: Task, recipe: Recipe, name: str, place: Path, shared: Path | None = None, deadline: float | None = None
) -> Matcher:
    """A trained student, loaded from `place` if it is there already.

    `recipe` is the task's recipe, or one that differs only in the student, its stages or its seed. Students that begin
    with the same stages take their weights from `shared`, so that these stages are trained once. At a
    `deadline` (of `time.monotonic`) training stops with a checkpoint, and `OutOfTime` is raised.
    """
    if not place.exists():
        check_before_teacher(task, recipe)
        teacher = prepare_teacher(task) if _needs_teacher(task, recipe) else None
        if teacher is not None:
            task.reference.read_given()
        student = start_student(task, recipe, place.parent / "work")
        if 1 not in student.trained_positions:
            task.reference.serve_documents(student)
        how = _fit_settings(task, recipe, name, place, student, teacher)
        how.deadline = deadline
        if shared is not None:
            how.shared = shared / digest(recipe.student.model_dump_json())
        fit(student, recipe.stages, lambda stage: task.lists(stage, recipe.seed), how)
        _save(task, student, place)
    return load_matcher(place)


def check_before_teacher(task: Task, recipe: Recipe) -> None:
    """Check data, recipe and student before spending hours on a teacher."""
    task.check(recipe)
    _ = task.judged_dev  # reads the data, so that mistakes are found before a model is loaded
    task.reference.check_given()
    if not has_to_be_trained(task):
        return
    if "init_from" in recipe.student.taken_from_teacher:
        assert recipe.teacher is not None and recipe.teacher.train is not None
        check_layers(recipe.student, recipe.teacher.train)
    elif not recipe.student.taken_from_teacher:
        student = untrained_student(recipe.stages, recipe.student, recipe.seed)
        _check_attention(recipe, student)


def _check_attention(recipe: Recipe, student: Matcher) -> None:
    """Compare the attention of the student with that of a teacher that is still to be trained, if it is to learn it."""
    stages = [stage for stage in recipe.stages if stage.student_signals & TEXT_ATTENTION]
    if stages and recipe.teacher is not None and recipe.teacher.train is not None:
        teacher = build(recipe.teacher.train)
        for stage in stages:
            layers_shown(student, teacher, stage)


def _needs_teacher(task: Task, recipe: Recipe) -> bool:
    """Whether the student learns or starts from the teacher, or is compared with it on dev without labels.

    Vectors from the user are compared with the teacher's before training.
    """
    if recipe.teacher is not None and recipe.teacher.vectors is not None:
        return True
    student, fits = recipe.student, recipe.student.fits_to_reference
    return _distils(recipe) or bool(student.taken_from_teacher) or fits or task.judged_dev is None


def _distils(recipe: Recipe) -> bool:
    return any(stage.needs_teacher for stage in recipe.stages)


def _fit_settings(task: Task, recipe: Recipe, name: str, place: Path, student: Matcher, teacher: Matcher | None) -> Fit:
    """How to fit the student: the teacher's signals (live or cached), the dev measure, and folders."""
    teacher = teacher if _distils(recipe) else None
    _refuse_outputs(task, student, teacher)
    live = teacher if recipe.teacher is not None and recipe.teacher.live else None
    how = Fit(name, place.parent / "work", task.log, recipe.seed, task.student_dev, live)
    how.outputs = task.work / "frozen"
    if live is not None:
        for stage in recipe.stages:
            layers_shown(student, live, stage)
    _add_teacher_signals(how, teacher, task.reference, recipe.stages)
    if _distils(recipe):
        lists = [task.lists(stage, recipe.seed) for stage in recipe.stages]  # their statistics need all scores
        if any("scores" in stage.teacher_signals for stage in recipe.stages):
            how.standardise = task.standardise
        for stage, some in zip(recipe.stages, lists, strict=True):
            if isinstance(some, TextLists):
                continue
            for line in poor_targets(stage, some, how.standardise, live) if is_main() else ():
                task.warn(line)
        task.warn(teacher_below_its_start(task))
    dev = task.snapshot_dev
    if "snapshots" in recipe.evaluation.analyses and dev is not None:
        how.snapshots = place.parent / SNAPSHOTS
        if is_main() and not how.snapshots.exists():
            dev(student)
            keep_snapshot(how.snapshots, dev)
    return how


def _refuse_outputs(task: Task, student: Matcher, teacher: Matcher | None) -> None:
    for who, matcher in (("teacher", teacher), ("student", student)):
        if matcher is not None:
            task.require_outputs(who, matcher)
    if teacher is not None and teacher.outputs != student.outputs:
        problem = f"the teacher gives {teacher.outputs} scores per pair, but the student gives {student.outputs}"
        raise LimbeckError(f"{problem}; set student.outputs to the same number")


def _add_teacher_signals(how: Fit, teacher: Matcher | None, reference: Reference, stages: Sequence[Stage]) -> None:
    """Refuse a teacher without the signals that the objectives need; missing embeddings come from the reference."""
    how.cached_teacher = teacher if how.teacher is None else None
    for stage in stages:
        if teacher is not None:
            require_signals("teacher", teacher, stage.teacher_signals - EMBEDDINGS)
        live = how.teacher is not None and how.teacher.shows >= stage.teacher_signals & EMBEDDINGS
        if stage.teacher_signals & EMBEDDINGS and not live:
            how.reference, how.embeddings = reference.matcher, reference.embeddings


def _save(task: Task, student: Matcher, place: Path) -> None:
    with main_first() as main:
        if main:
            beside = place.with_name(f".{place.name}.new")  # so that the student appears together with its other files
            student.save_pretrained(beside)
            task.after_training(student, beside)
            beside.rename(place)
