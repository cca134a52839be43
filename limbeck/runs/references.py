"""The models that students are compared with: the teacher, BM25, and the untrained model that they start from."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from limbeck.errors import LimbeckError
from limbeck.files import slug
from limbeck.matchers import Matcher, MatcherConfig
from limbeck.progress import say
from limbeck.report.formatting import measure_title
from limbeck.runs.measured import once
from limbeck.runs.reference import untrained_start
from limbeck.runs.results import Measured
from limbeck.runs.task import Task
from limbeck.runs.teacher_step import prepare_teacher
from limbeck.sealed import read_if_whole, write_sealed
from limbeck.training.log import best_on_dev
from limbeck.training.processes import main_first


def measure_references(task: Task, place: Path | None = None) -> dict[str, Measured]:
    """Every reference, by the name of its directory; those in `place` are not measured again."""
    found = {}
    for name, measure in _references(task):
        try:
            found[slug(name)] = once(place / slug(name), measure, task.result_type) if place is not None else measure()
        except _NoRow as reason:
            say(f"{name}: {reason}")
    return found


class _NoRow(Exception):
    """Why a reference has no row in the table."""


def _references(task: Task) -> Iterator[tuple[str, Callable[[], Measured]]]:
    spec = task.recipe.teacher
    if spec is not None and not spec.only_scores:
        yield "teacher", partial(_teacher, task)
    own = task.own_baselines()
    for baseline in task.recipe.evaluation.baselines:
        if baseline in own:
            yield own[baseline]
        start = task.first_start().init_from
        if baseline == "start" and (spec is None or start != spec.model):  # otherwise the teacher's row is the same
            yield f"{start}, as it is", partial(_start, task)


def _teacher(task: Task) -> Measured:
    teacher = prepare_teacher(task)
    assert teacher is not None
    return task.bench.model("teacher", "teacher", teacher)


def _start(task: Task) -> Measured:
    spec = task.first_start()
    return task.bench.model(f"{spec.init_from}, as it is", "baseline", _as_it_is(task, spec))


def _as_it_is(task: Task, spec: MatcherConfig) -> Matcher:
    """The start of a model, if its scores fit the task."""
    try:
        matcher = untrained_start(spec)
    except LimbeckError as error:
        raise _NoRow(f"no row in the table ({error})") from error
    wanted = task.recipe.student.output_count
    if not task.can_measure(matcher):
        raise _NoRow(f"gives {matcher.outputs} score per pair, but the task has {wanted}, so it has no row")
    return matcher


def teacher_below_its_start(task: Task) -> str | None:
    """A warning about a trained teacher that is worse on dev than its own start, or None.

    It is measured before students learn from the teacher, and saved with it.
    """
    spec = task.recipe.teacher
    if spec is None or spec.train is None or task.judged_dev is None or task.teacher is None:
        return None
    place = task.folder / "teacher" / "dev.json"
    with main_first() as main:
        if main and read_if_whole(place) is None:
            write_sealed(place, _on_dev(task, spec.train))
    found = read_if_whole(place) or {}
    if "start" not in found or found["teacher"] >= found["start"]:
        return None
    values = f"{measure_title(found['measure'])} {found['teacher']:.3f} on dev, below {found['start']:.3f}"
    remedy = f"give it more labels or steps, or use {spec.train.init_from} itself as the teacher"
    return f"the teacher has {values} of the model that it starts from ({spec.train.init_from}); {remedy}"


def _on_dev(task: Task, spec: MatcherConfig) -> dict[str, object]:
    """The first dev measure of the teacher and of its start; only of the teacher if the start gives no score."""
    judge, last = task.judged_dev, len(task.recipe.teacher.stages) - 1  # type: ignore[union-attr]
    assert judge is not None and task.teacher is not None
    seen = best_on_dev(task.log, "teacher", last) or judge(task.teacher)
    measure = next(iter(seen))
    try:
        start = {"start": judge(_as_it_is(task, spec))[measure]}
    except _NoRow:
        start = {}
    return {"measure": measure, "teacher": seen[measure], **start}
