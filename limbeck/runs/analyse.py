"""The analyses of a run or a sweep: which models and queries they use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, cast

import numpy as np

from limbeck.data import Qrels, Run, positives
from limbeck.errors import LimbeckError
from limbeck.evaluation import RankingResult, rerank
from limbeck.evaluation.pair_vectors import PairVectors, pair_vectors
from limbeck.progress import say
from limbeck.report.analyses import SettingPoint, TrainTest, generalisation, sensitivity
from limbeck.report.analyses.base import Result
from limbeck.report.analyses.measured_run import AttentionModels, MeasuredModel, MeasuredPairs, MeasuredRun
from limbeck.report.analyses.registry import analyses
from limbeck.report.analyses.stored import NOT_KEPT, forget, leave_out, store
from limbeck.report.formatting import listed
from limbeck.runs.attention_models import attention_models
from limbeck.runs.counted_axis import CountedAxis, counted_axis
from limbeck.runs.grid import Axis
from limbeck.runs.results import Measured
from limbeck.runs.teacher_step import prepare_teacher
from limbeck.training.queries import draw

if TYPE_CHECKING:
    from limbeck.runs.ranking_task import RankingTask
    from limbeck.runs.task import Task

MOST_QUERIES = 1000  # whose scores are used; more would not change the plots


class Analyst:
    """Computes the analyses of measurements and stores them."""

    def __init__(self, task: RankingTask, measured: Sequence[Measured], folder: Path) -> None:
        self.folder = folder
        self.measured = measured_run(task, measured, folder)

    def run(self, names: Sequence[str], strict: bool = False) -> None:
        """Compute the analyses `names`; if one lacks its input, the report says so, or it raises if `strict`."""
        known = analyses()
        for name in names:
            say(f"Analysing: {name.replace('_', ' ')}")
            store(self.folder, name, partial(known[name].of, self.measured), strict)


def analyse_pairs(
    task: Task,
    pairs: Sequence[tuple[str, ...]],
    measured: Sequence[Measured],
    folder: Path,
    names: Sequence[str],
    strict: bool = False,
) -> None:
    """Those of the analyses called `names` that read pairs, of some test `pairs`."""
    known, run = analyses(), MeasuredPairs(partial(attention_models, task, measured, pairs))
    for name in names:
        if known[name].reads_pairs:
            say(f"Analysing: {name.replace('_', ' ')}")
            store(folder, name, partial(known[name].of_pairs, run), strict)


def measured_run(task: RankingTask, measured: Sequence[Measured], folder: Path) -> MeasuredRun:
    """The input of analyses for a task: a sample of its test queries, and its training queries that are not test
    queries.
    """
    splits, recipe = task.splits, task.recipe
    chosen = set(draw(splits.test, MOST_QUERIES, recipe.data_seed))
    labels = {query: splits.test_labels[query] for query in chosen}
    train = {query: grades for query, grades in splits.train_labels.items() if query not in splits.test_labels}
    return MeasuredRun(
        data=task.data,
        labels=labels,
        models=[_model(one) for one in measured if one.row.measures],
        folder=folder,
        train_labels=train,
        dev_labels=splits.dev_labels,
        relevance_level=recipe.evaluation.relevance_level,
        document_length=recipe.student.document_length,
        teacher_matrix=partial(_teacher_matrix, task, labels),
        teacher_vectors=partial(_teacher_vectors, task),
        attention=partial(_attention, task, labels, measured),
    )


def _model(one: Measured) -> MeasuredModel:
    row, result = one.row, cast(RankingResult, one.result)
    return MeasuredModel(
        row.name,
        row.kind,
        row.measures,
        result,
        one.run,
        one.distances or (),
        row.significance,
        row.query_ms,
        row.query_parameters,
    )


def _teacher_matrix(task: RankingTask, labels: Qrels) -> Run:
    """A full matrix: some test queries, each with the documents of all of them, positives first, then candidates."""
    teacher = prepare_teacher(task)
    if teacher is None:
        raise LimbeckError("the teacher has no model to score a full matrix with; give teacher.model")
    spec = task.recipe.evaluation
    queries = draw(labels, spec.rank_queries, task.recipe.data_seed)
    depth = max(10, 2 * -(-spec.rank_documents // len(queries)))  # twice as many as needed: lists share documents
    found = task.candidates(queries, task.recipe.data.test or "test", depth)
    level = spec.relevance_level
    own = [list(dict.fromkeys([*positives(labels[query], level), *found[query]])) for query in queries]
    in_turn = (row[place] for place in range(max(map(len, own))) for row in own if place < len(row))
    chosen = list(dict.fromkeys(in_turn))[: spec.rank_documents]
    return rerank(teacher, task.data, dict.fromkeys(queries, chosen))


def _teacher_vectors(task: RankingTask, lists: Mapping[str, Sequence[str]]) -> PairVectors:
    """The teacher's vectors of pairs, with queries and documents given by id."""
    teacher = prepare_teacher(task)
    if teacher is None:
        raise LimbeckError("the teacher has no model to show vectors of pairs; give teacher.model")
    return pair_vectors(teacher, task.data, lists)


def _attention(task: RankingTask, labels: Qrels, measured: Sequence[Measured]) -> AttentionModels:
    """Each query with its first relevant document."""
    level = task.recipe.evaluation.relevance_level
    relevant = {query: positives(labels[query], level) for query in draw(labels, len(labels), task.recipe.data_seed)}
    data = task.data
    pairs = [(data.queries[query], data.corpus[found[0]]) for query, found in relevant.items() if found]
    return attention_models(task, measured, pairs)


class _Placed(NamedTuple):
    """A measurement at its position on the axis, for the line `name`."""

    name: str
    value: float
    seed: int
    found: Measured


def analyse_axis(
    folder: Path,
    axes: Sequence[Axis],
    points: Sequence[tuple[dict[str, str], int, Measured]],
    measured: Sequence[Measured] = (),
) -> None:
    """Quality along the single numeric axis of a sweep, one line for each setting of the others; also train and test.

    `points` are (settings, seed, measurement); for train against test, models are compared with the teacher in
    `measured`. A grid with no numeric axis, or with several, has no such plot; its settings are judged one by one. An
    axis with words around a number, such as `first:2`, has a plot too.
    """
    for name in ("sensitivity", "generalisation"):  # from an earlier grid in this directory
        forget(folder, name)
    if not points:
        return
    numeric = [axis for axis in axes if len(axis.values) > 1 and all(_number(v) is not None for v in axis.values)]
    key, values = (numeric[0].key, numeric[0].values) if len(numeric) == 1 else ("", ())
    measure = next(iter(points[0][2].row.measures))
    placed = [
        _Placed(_line_name(place, key), _number(place[key]) or 0.0 if key else 1.0, seed, found)
        for place, seed, found in points
    ]
    if key:
        settings = [SettingPoint(one.name, one.value, one.found.row.measures[measure], one.seed) for one in placed]
        store(folder, "sensitivity", lambda: sensitivity(settings, key, measure))
    elif numeric:
        varied = listed([axis.key for axis in numeric])
        leave_out(folder, "sensitivity", f"{varied} vary at once, but a curve needs a single key; sweep one at a time")
    elif (counted := counted_axis(axes)) is not None:
        settings = [
            SettingPoint(_counted_name(place, counted), counted.places[place[counted.key]][1], quality, seed)
            for place, seed, quality in ((place, seed, found.row.measures[measure]) for place, seed, found in points)
            if place[counted.key] in counted.places
        ]
        store(folder, "sensitivity", lambda: sensitivity(settings, counted.title, measure))
    teachers = [one for one in measured if one.row.kind == "teacher"]
    lacking = _lacks_train_test(placed, teachers, measure)
    if lacking is None:
        largest = max((_number(value) or 0.0 for value in values), default=1.0)
        curves = [_Placed(teachers[0].row.name, largest, 0, teachers[0]), *placed]
        store(folder, "generalisation", lambda: _generalisation(curves, measure, key))
    elif lacking and axes:  # for a single run this needs no explanation
        leave_out(folder, "generalisation", lacking)


def _lacks_train_test(placed: Sequence[_Placed], teachers: Sequence[Measured], measure: str) -> str | None:
    """Why train and test are not compared; empty if there is nothing to compare with."""
    if not teachers or not placed[0].found.result.by_query(measure):
        return ""
    if any(f"train {measure}" not in row.measures for row in [teachers[0].row, *(one.found.row for one in placed)]):
        return "no training queries were measured; set evaluation.train_queries, e.g. to 200, and sweep again"
    if len(teachers) > 1:
        return "the settings have different data or teachers, but gaps need the same teacher; sweep them separately"
    return None


def _generalisation(curves: Sequence[_Placed], measure: str, key: str) -> Result:
    return generalisation([_train_test(one, measure) for one in curves], measure, setting=key)


def _counted_name(place: dict[str, str], axis: CountedAxis) -> str:
    """The words around the number, where they differ, and the values of the other axes."""
    others = [value for key, value in place.items() if key != axis.key]
    return ", ".join(part for part in (axis.line(place[axis.key]), *others) if part) or "student"


def _line_name(place: dict[str, str], key: str) -> str:
    return ", ".join(value for other, value in place.items() if other != key) or "student"


def _train_test(one: _Placed, measure: str) -> TrainTest:
    """A measurement's values per query, on training queries and on test queries."""
    result = one.found.result
    train = result.by_query(f"train {measure}")
    if not train:
        raise LimbeckError(NOT_KEPT)
    return TrainTest(one.name, one.value, train, result.by_query(measure), one.seed)


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if np.isfinite(value) else None
