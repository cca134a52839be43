"""From a teacher and texts to the front of its students, the one to take, and a verdict.

    DIR/students/NAME/   recipe.yaml (repeats it with `limbeck distill`), rung-N/ (the student)
    DIR/student/         the recommended one
    DIR/measured/        values per query of every row
    metrics.json, report.html

The order is chosen so that a mistake or a bad teacher shows early: check, measure teacher and baselines, train
students from cheap to dear, measure them in every runtime, time everything in turns. The first student is measured
before the second is trained, and each later one when its training is over. A table is written after each of them.
Killed at any point and called again, it goes on where it was.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path

from limbeck.errors import LimbeckError
from limbeck.files import alone_in, make_directory, naming_disk_errors, recover_in
from limbeck.matchers import Matcher
from limbeck.matchers.base import weights_digest
from limbeck.matchers.device_choice import restoring_device
from limbeck.matchers.names import has_minilm, model_folder
from limbeck.report.run import run_report
from limbeck.runs.compress.bench import CompressBench, Search
from limbeck.runs.compress.clock import USED, Clock
from limbeck.runs.compress.contenders import FEW, Contender, Contenders
from limbeck.runs.compress.exam import LABELLED
from limbeck.runs.compress.ladder import Ladder
from limbeck.runs.compress.limits import Limits
from limbeck.runs.compress.mistakes import write_mistakes
from limbeck.runs.compress.setting import DEPTH, Request, Setting, is_scores, load_teacher, prepare
from limbeck.runs.compress.table import Compressed, Known, Timings, read_timings, write_table, write_timings
from limbeck.runs.finish_run import answer_questions
from limbeck.runs.reference import untrained_start
from limbeck.runs.results import Measured, ResultRow
from limbeck.runs.run_folder import METRICS
from limbeck.sealed import read_if_whole, write_sealed

MINILM = "minilm"
LISTS = "lists.json"  # the teacher's ranking of held-out queries
SEARCH = "search"  # its name among the timings; no row has it


@dataclass
class Compression:
    """One run of `compress`."""

    setting: Setting
    folder: Path
    limits: Limits
    clock: Clock
    threads: int
    questions: Sequence[str] = ()

    def __post_init__(self) -> None:
        setting = self.setting
        self.bench = CompressBench(setting.task, setting.data, self.threads)
        self.contenders = Contenders(self.bench, setting.test, self.folder, self.clock)
        self.ladder = Ladder(setting.task, self.bench, self.folder, setting.candidates, setting.dev, self.clock)

    def run(self) -> Compressed:
        setting = self.setting
        self._rank_with_teacher()
        self._bm25()
        if setting.teacher is not None:
            self.contenders.measure("teacher", "teacher", self._load_teacher)
        self._measure_what_is_there()
        self.ladder.climb(self._reserve, self._show)
        for name in self.ladder.kept:
            self._measure_student(name)
        return self._table(final=True)

    def _rank_with_teacher(self) -> None:
        """The teacher's own ranking of dev and test queries; its scores of candidates are in the run's store."""
        teacher, place = self.setting.teacher, self.folder / "teacher" / LISTS
        exams = {"dev": self.setting.dev, "test": self.setting.test}
        if not self.setting.searches:
            for exam in exams.values():
                exam.teacher = self.setting.task.teacher_run(exam.candidates)
            return
        assert teacher is not None
        known = read_if_whole(place)
        if known is None:
            self.bench.serve(teacher, self.folder / "teacher" / "embeddings")
            known = {name: self.bench.ranking(teacher, exam) for name, exam in exams.items()}
            write_sealed(place, known)
        for name, exam in exams.items():
            exam.teacher = known[name]

    def _load_teacher(self) -> Matcher:
        return self.bench.ready(load_teacher(self.setting.request), self.folder / "teacher" / "embeddings")

    def _measure_what_is_there(self) -> None:
        """A dual encoder that a user could take as it is: the start of re-ranking students, otherwise MiniLM.

        MiniLM is left out if it is not on this machine, if it is the teacher, or if document vectors have to be kept.
        """
        if not self.setting.searches:
            self.contenders.measure(_as_it_is(self.setting.request.students_start), "baseline", self._load_start)
        elif self.setting.request.vectors is None and has_minilm():
            load = partial(self.bench.load, MINILM, self.folder / "minilm")
            teacher = self.setting.teacher
            assert teacher is not None
            if weights_digest(load()) != weights_digest(teacher):
                self.contenders.measure(_as_it_is(MINILM), "baseline", load)

    def _load_start(self) -> Matcher:
        start = untrained_start(self.setting.task.first_start())
        self.bench.serve(start, self.folder / "start")
        return start

    def _bm25(self) -> None:
        """BM25, which a user has for nothing; warn at once of a teacher, or of scores, that are not worth an hour."""
        exam, task = self.setting.test, self.setting.task
        run = self.bench.bm25(exam)
        result = exam.judge(run)
        measured = Measured(ResultRow("BM25", "baseline", result.means), result, run)
        self.contenders.add("BM25", measured, lambda query: task.bm25([query], DEPTH))
        if not exam.labels:
            return
        ours, theirs = (found.means[LABELLED] for found in (exam.judge(exam.teacher), result))
        if ours <= theirs:
            told = f"the teacher is no better than BM25 on the labels (nDCG@10 {ours:.3f} against {theirs:.3f})"
            remedy = "students that learn from it alone will not be either: try another teacher, or use BM25"
            task.warn(f"{told}; {remedy}")

    def _is_measured(self, name: str) -> bool:
        return self.contenders.has(name, self.ladder.student(name).name)

    def _measure_student(self, name: str) -> None:
        """Measure a student in its runtimes, unless these weights were measured in this call."""
        if not self._is_measured(name):
            student = self.ladder.student(name)
            load = partial(self.bench.load, student, self.ladder.documents(name))
            is_static = self.ladder.candidates[name].is_static
            self.contenders.measure(name, "student", load, student.name, is_static)

    def _show(self, name: str) -> None:
        """Measure a student that is the first one or whose training is over, and write a table if it is news.

        A run that is killed later has this table.
        """
        is_first = not any(each.measured.row.kind == "student" for each in self.contenders.rows.values())
        if self._is_measured(name) or not (is_first or self.ladder.progress[name].over):
            return
        self._measure_student(name)
        if self.ladder.changed or not (self.folder / METRICS).exists():
            self._table(final=False)

    def _reserve(self, others: Collection[str]) -> float:
        """Seconds to measure one more student and those of `others` that are not measured yet, and to time all."""
        return self.contenders.reserve(1 + sum(not self._is_measured(name) for name in others))

    def _table(self, final: bool) -> Compressed:
        """Write what is known. All rows are timed in turns only in the end, which takes minutes if one is slow."""
        ladder, kept = self.ladder, set(self.ladder.kept)
        for name in kept:
            if any(row.model == name for row in self.contenders.rows.values()):
                self._measure_student(name)  # again, if it was trained further
        rows = {name: row for name, row in self.contenders.rows.items() if row.model not in ladder.candidates}
        rows |= self.contenders.of(kept)
        timings = self._timings(rows) if final else self._first_timings(rows)
        trained = [name for name, known in ladder.progress.items() if known.has_student]
        table = Known(
            self.setting.task,
            self.folder,
            [each.measured for each in rows.values()],
            timings,
            self.setting.test.measure,
            {name: ladder.student(name) for name in trained},
            frozenset(name for name in trained if ladder.candidates[name].keeps_documents),
            ladder.notes(),
            self.clock.used,
            self.setting.searches,
            final,
            self.setting.test.of_teacher,
        )
        if not final:
            return write_table(table, self.limits)
        write_mistakes(self.setting, self.folder, table.measured)
        result = write_table(table, self.limits)
        if self.questions:
            name = result.student_name
            student = self.bench.load(ladder.student(name), ladder.documents(name))
            answer_questions(self.setting.task, self.folder, name, student, self.questions)
            run_report(self.folder)
        return result

    def _timings(self, rows: dict[str, Contender]) -> Timings:
        """All rows in turns; those of an earlier call if nothing was trained since."""
        found = read_timings(self.folder)
        known = found is not None and found.threads == self.threads and rows.keys() <= found.ms.keys()
        if found is None or not known or self.ladder.changed:
            calls, search = {name: each.call for name, each in rows.items()}, self._search()
            ms = self.bench.times(calls | ({SEARCH: search.call} if search is not None else {}), self.setting.test)
            search_ms = ms.pop(SEARCH) * search.factor if search is not None else None
            found = Timings(ms, self.threads, len(self.bench.timed(self.setting.test)), search_ms)
            write_timings(self.folder, found)
        return found

    def _first_timings(self, rows: dict[str, Contender]) -> Timings:
        """Every row alone, on a few queries."""
        return Timings({name: each.ms for name, each in rows.items()}, self.threads, FEW, self._search_ms)

    @cached_property
    def _search_ms(self) -> float | None:
        search = self._search()
        if search is None:
            return None
        return self.bench.times({SEARCH: search.call}, self.setting.test, FEW)[SEARCH] * search.factor

    def _search(self) -> Search | None:
        """The search of the teacher's document vectors, if there are any."""
        teacher = self.setting.teacher if self.setting.searches else None
        kept = teacher.encoding(1) if teacher is not None else None
        return self.bench.search(kept.dim) if kept is not None else None


@restoring_device
def compress(
    teacher: str,
    data: str,
    out: str | Path,
    budgets: Sequence[str] = (),
    keep: str | float | None = None,
    minutes: float | None = 30,
    vectors: str | None = None,
    start: str | None = None,
    threads: int = 1,
    seed: int = 0,
    length: int | None = None,
    questions: Sequence[str] = (),
) -> Compressed:
    """Distil a teacher into students along the whole range of cost, and recommend one.

    The report shows how the teacher and the recommended student answer `questions`.
    """
    limits, folder = Limits.parse(budgets, keep), Path(out)
    if minutes is not None and not minutes > 0:
        raise LimbeckError(f"--minutes {minutes:g}: no student can be trained in it; give a number above 0")
    if questions and is_scores(teacher):
        raise LimbeckError("--question is for a teacher that is a model: scores have no answers; drop it")
    if folder.exists() and not folder.is_dir():
        raise LimbeckError(f"{folder}: is a file; choose another --out")
    began, existed = time.monotonic(), folder.exists()
    request = Request(_model(teacher), str(data), vectors, start and _model(start), seed, length)
    with naming_disk_errors(folder):
        make_directory(folder)
    with alone_in(folder):
        recover_in(folder)  # what a killed call left half-written
        try:
            setting = prepare(request, folder, minutes)
        except Exception:
            if not existed:
                shutil.rmtree(folder, ignore_errors=True)  # nothing half-done stays behind
            raise
        recover_in(folder, deep=True)  # only now is it known to be a run's
        clock = Clock(minutes, folder / USED, began)
        try:
            result = Compression(setting, folder, limits, clock, threads, questions).run()
            clock.finish()
        finally:
            clock.save()
        shutil.rmtree(setting.task.work, ignore_errors=True)
        return result


def _as_it_is(model: str) -> str:
    """The name of the row of a model that is not changed; without the path of its folder."""
    return f"{Path(model).name or model}, as it is"


def _model(name: str) -> str:
    """The folder of the student, if `name` is the folder of a run."""
    return str(model_folder(name)) if Path(name).expanduser().is_dir() else name
