"""The analyses of a run or a sweep: which models and queries each one is about."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from limbeck.data import Run, positives
from limbeck.errors import LimbeckError
from limbeck.evaluation import RankingResult, rerank
from limbeck.files import read_json
from limbeck.progress import say
from limbeck.report.analyses import (
    SettingPoint,
    TrainTest,
    disagreements,
    generalisation,
    normalised_margins,
    numerical_rank,
    score_distributions,
    score_matrix,
    sensitivity,
    top_lists,
    wins_and_losses,
)
from limbeck.report.analyses.base import Result
from limbeck.report.analyses.stored import NOT_KEPT, forget, leave_out, store
from limbeck.report.formatting import listed
from limbeck.training.grid import Axis
from limbeck.training.queries import draw
from limbeck.training.results import Measured
from limbeck.training.session import Session

MOST_QUERIES = 1000  # whose scores are looked at; more change no picture
SNAPSHOTS = "snapshots"  # beside a student: its scores of dev while it trained


class Analyst:
    """Computes the analyses of what was measured, and keeps them beside it."""

    def __init__(self, session: Session, measured: Sequence[Measured], folder: Path) -> None:
        self.session, self.folder = session, folder
        self.measured = [one for one in measured if one.row.measures]
        labels = session.splits.test_labels
        chosen = set(draw(session.splits.test, MOST_QUERIES, session.recipe.data_seed))
        self.labels = {query: labels[query] for query in chosen}
        self.students = [one for one in self.measured if one.row.kind == "student"]

    def run(self, names: Sequence[str], strict: bool = False) -> None:
        """The analyses called `names`; one that lacks what it needs says so in the report, or raises if `strict`."""
        found: dict[str, Callable[[], Result]] = {
            "scores": self._scores,
            "margins": lambda: normalised_margins(self._runs(), self.labels, self._level),
            "rank": self._rank,
            "disagreements": self._disagreements,
            "top_lists": self._top_lists,
            "wins": self._wins,
            "snapshots": self._snapshots,
        }
        for name in names:
            say(f"Analysing: {name.replace('_', ' ')}")
            store(self.folder, name, found[name], strict)

    @property
    def _level(self) -> int:
        return self.session.recipe.evaluation.relevance_level

    def _ranking(self, measured: Measured) -> Run:
        return {query: scores for query, scores in measured.run.items() if query in self.labels}

    def _runs(self) -> dict[str, Run]:
        return {one.row.name: self._ranking(one) for one in self.measured if one.row.name != "BM25"}

    def _scores(self) -> Result:
        """Of test queries, and of training queries where their scores were kept."""
        found = score_distributions(self._runs(), self.labels, self._level)
        splits = self.session.splits
        labels = {query: grades for query, grades in splits.train_labels.items() if query not in splits.test_labels}
        runs = {
            one.row.name: {query: scores for query, scores in one.run.items() if query in labels}
            for one in self.measured
            if one.row.name != "BM25"
        }
        if not all(runs.values()):
            return found
        try:
            trained = score_distributions(runs, labels, self._level)
        except LimbeckError:  # none of the few training queries has a positive and a negative: test queries stay
            return found
        return found.model_copy(update={"train": trained.models})

    def _teacher(self) -> Measured:
        found = next((one for one in self.measured if one.row.kind == "teacher"), None)
        if found is None:
            raise LimbeckError("there is no teacher to compare with; give teacher.model or teacher.train")
        return found

    def _best(self) -> Measured:
        """The student with the best first measure."""
        return max(self.students, key=lambda one: next(iter(one.row.measures.values())))

    def _disagreements(self) -> Result:
        teacher, student = self._ranking(self._teacher()), self._ranking(self._best())
        read = self.session.recipe.student.document_length
        return disagreements(teacher, student, self.labels, self.session.data, at_least=self._level, tokens_read=read)

    def _top_lists(self) -> Result:
        pair = [self._teacher(), self._best()]
        runs = {one.row.name: self._ranking(one) for one in pair}
        return top_lists(runs, self.labels, self.session.data, at_least=self._level)

    def _wins(self) -> Result:
        """The best student against the one that the others are tested against; that one, if it is the best, against the
        next best, and a student that stands alone against the teacher.
        """
        best = self._best()
        against = next((one.row.significance["against"] for one in self.students if one.row.significance), None)
        others = sorted(self.students, key=lambda one: -next(iter(one.row.measures.values())))
        rivals = [one for one in (*others, *self.measured) if one is not best]
        rival = next((one for one in rivals if one.row.name == against), None) or next(iter(rivals), None)
        if rival is None:
            raise LimbeckError("there is only one model to look at; add a teacher or a baseline")
        measure = next(iter(best.row.measures))
        names = (best.row.name, rival.row.name)
        assert isinstance(best.result, RankingResult) and isinstance(rival.result, RankingResult)
        found = wins_and_losses(best.result, rival.result, measure, self.session.data, names)
        test = best.row.significance
        corrected = test["p_holm"] if test is not None and test["against"] == rival.row.name else None
        return found if corrected is None else found.model_copy(update={"p": corrected})

    def _snapshots(self) -> Result:
        """The student's scores of the dev queries at the start, midway and at the end of its training."""
        files = sorted((self.folder / SNAPSHOTS).glob("*.json"))
        if len(files) < 2:
            problem = "no scores were kept while it trained"
            raise LimbeckError(f"{problem}; give evaluation.analyses snapshots before training, and a labelled dev")
        midway = {"midway": files[len(files) // 2]} if len(files) > 2 else {}
        moments = {"start": files[0], **midway, "end": files[-1]}
        runs = {name: read_json(path) for name, path in moments.items()}
        return score_distributions(runs, self.session.splits.dev_labels, self._level)

    def _rank(self) -> Result:
        """Of a full matrix: some test queries, each with documents of all of them, positives first, then candidates."""
        session = self.session
        if session.teacher is None:
            raise LimbeckError("the teacher has no model to score a full matrix with; give teacher.model")
        spec = session.recipe.evaluation
        queries = draw(self.labels, spec.rank_queries, session.recipe.data_seed)
        depth = max(10, 2 * -(-spec.rank_documents // len(queries)))  # twice the need: lists have documents in common
        found = session.candidates(queries, session.recipe.data.test or "test", depth)
        own = [list(dict.fromkeys([*positives(self.labels[query], self._level), *found[query]])) for query in queries]
        in_turn = (row[place] for place in range(max(map(len, own))) for row in own if place < len(row))
        chosen = list(dict.fromkeys(in_turn))[: spec.rank_documents]
        run = rerank(session.teacher, session.data, dict.fromkeys(queries, chosen))
        return numerical_rank(score_matrix(run))


class _Placed(NamedTuple):
    """A measurement at its place on the axis, on the line called `name`."""

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
    """Quality along the one numeric axis of a sweep, a line for each setting of the others; train against test too.

    `points` are (settings, seed, measurement); the teacher among `measured` is what train and test are held against.
    A grid with no numeric axis, or with several, has no such picture, and each of its settings is judged by itself.
    """
    for name in ("sensitivity", "generalisation"):  # of an earlier grid in this directory
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
        leave_out(folder, "sensitivity", f"{varied} vary at once, and a curve is along one; sweep one at a time")
    teachers = [one for one in measured if one.row.kind == "teacher"]
    lacking = _lacks_train_test(placed, teachers, measure)
    if lacking is None:
        largest = max((_number(value) or 0.0 for value in values), default=1.0)
        curves = [_Placed(teachers[0].row.name, largest, 0, teachers[0]), *placed]
        store(folder, "generalisation", lambda: _generalisation(curves, measure, key))
    elif lacking and axes:  # a single run was not asked that question
        leave_out(folder, "generalisation", lacking)


def _lacks_train_test(placed: Sequence[_Placed], teachers: Sequence[Measured], measure: str) -> str | None:
    """Why train and test are not compared; empty where there is nothing to compare with."""
    if not teachers or not isinstance(placed[0].found.result, RankingResult):
        return ""
    if any(f"train {measure}" not in row.measures for row in [teachers[0].row, *(one.found.row for one in placed)]):
        return "no training queries were measured; set evaluation.train_queries, e.g. to 200, and sweep again"
    if len(teachers) > 1:
        return "the settings have data or teachers of their own, and gaps are to one teacher; sweep them apart"
    return None


def _generalisation(curves: Sequence[_Placed], measure: str, key: str) -> Result:
    return generalisation([_train_test(one, measure) for one in curves], measure, setting=key)


def _line_name(place: dict[str, str], key: str) -> str:
    return ", ".join(value for other, value in place.items() if other != key) or "student"


def _train_test(one: _Placed, measure: str) -> TrainTest:
    """A measurement's values, query by query, on training queries and on test queries."""
    result, train = one.found.result, f"train {measure}"
    assert isinstance(result, RankingResult)
    if train not in result.besides:
        raise LimbeckError(NOT_KEPT)
    test = dict(zip(result.query_ids, result.per_query[measure].tolist(), strict=True))
    return TrainTest(one.name, one.value, result.besides[train], test, one.seed)


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if np.isfinite(value) else None
