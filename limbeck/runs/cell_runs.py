"""The runs of a sweep: every cell under every seed, tuned on dev, each done once and kept in its own folder."""

from __future__ import annotations

import json
import shutil
import traceback
from dataclasses import replace
from pathlib import Path
from typing import Any

from limbeck.errors import LimbeckError
from limbeck.files import digest, directory_atomically, read_json, write_json
from limbeck.matchers import Matcher
from limbeck.matchers import load as load_matcher
from limbeck.progress import say
from limbeck.recipe.recipe import Recipe
from limbeck.report.analyses.score_distributions import SNAPSHOTS
from limbeck.runs.grid import Cell
from limbeck.runs.measured import RESULT, read_measured, save_measured
from limbeck.runs.open_task import open_task
from limbeck.runs.references import measure_references
from limbeck.runs.results import Measured, over_seeds
from limbeck.runs.run_folder import STUDENTS, claim_folder
from limbeck.runs.student_card import KeptStudent
from limbeck.runs.task import DevMeasure, Task
from limbeck.runs.teacher_step import prepare_teacher
from limbeck.runs.train_student import train_student
from limbeck.sealed import read_if_whole, read_sealed, write_sealed

DONE = "done.json"  # in references/: all references are measured
BEST = "best.json"  # which student was copied; its own weights may have been dropped
ERROR = "error.txt"  # in a student's folder: why it failed
NO_DEV = "--tune requires dev queries; give data.dev, or drop --tune"


def shared_part(recipe: Recipe) -> str:
    """What must be equal for two runs to share data, teacher and measurements."""
    return digest(*(json.dumps(recipe.model_dump(mode="json")[part]) for part in ("data", "teacher", "evaluation")))


class CellRuns:
    """The runs of one sweep, and what they share."""

    def __init__(self, base: Recipe, folder: Path, seeds: list[int], several: bool) -> None:
        self.base, self.folder, self.seeds, self.several = base, folder, seeds, several
        self.tasks: dict[str, Task] = {}
        self.owners: dict[str, str] = {}  # the first cell of each task
        self.errors: list[str] = []
        self.lost: dict[str, list[str]] = {}  # cells for which all seeds failed
        self.points: list[tuple[dict[str, str], int, Measured]] = []  # a cell's settings, seed and result
        self.measured_at: dict[str, list[str]] = {}  # for references: the row's name, and its directories
        self.done: list[tuple[float, Cell, Cell, int]] = []  # dev quality, cell, its setting, seed

    def task(self, recipe: Recipe) -> Task:
        """The task of all runs with this data and teacher; in the sweep's own directory if there is only one task."""
        key = shared_part(recipe)
        if key not in self.tasks:
            place = self.folder / "shared" / key[:8] if self.several else self.folder
            self.tasks[key] = open_task(recipe, place)
        return self.tasks[key]

    def check(self, cell: Cell, tuned: bool) -> None:
        """Read the data of a cell; report problems with them, or with tuning, once and before training."""
        recipe = cell.with_seed(self.seeds[0])
        known = shared_part(recipe) in self.tasks
        task = self.task(recipe)
        task.check(recipe)
        if not known:
            if not task.has_test:
                problem = f"{task.data.name}: {task.no_test()}, but a sweep compares on it"
                raise LimbeckError(f"{problem}; give data.test")
            if tuned:
                _refuse_no_dev(task)
            _read_teacher(task)

    def _teacher_name(self, task: Task) -> str:
        """The name of the teacher's row; if there are several teachers, with the first cell that learns from it."""
        return f"teacher of {self.owners[shared_part(task.recipe)]}" if self.several else "teacher"

    @property
    def used(self) -> list[Task]:
        """The tasks of what was measured, without failures and settings that were not chosen."""
        return [task for key, task in self.tasks.items() if key in self.owners]

    @property
    def home(self) -> Task:
        """The task that the report is about."""
        return self.used[0]

    def cell(self, cell: Cell, tries: list[Cell]) -> Measured | None:
        """All seeds of one cell, after its tuning; None if all of them failed."""
        failed: list[str] = []
        chosen = self._tuned(cell, tries, failed)
        found = []
        for seed in self.seeds if chosen is not None else []:
            assert chosen is not None
            place = self._place(cell, chosen, seed)
            measured = self._attempt(
                lambda seed=seed: self._measured(cell, chosen, seed), place, f"seed {seed}", failed
            )
            found += [] if measured is None else [measured]
        if not found:
            self.lost[cell.name] = failed
            return None
        assert chosen is not None
        task = self.task(chosen.with_seed(self.seeds[0]))
        self.owners.setdefault(shared_part(task.recipe), cell.name)
        choice = chosen.name.removeprefix(cell.name).removeprefix(", ")
        gathered = over_seeds(found, cell.name, failed, choice or None)
        row = replace(gathered.row, logged=chosen.full_name)
        return replace(gathered, row=row, teacher=self._teacher_name(task))

    def _tuned(self, cell: Cell, tries: list[Cell], failed: list[str]) -> Cell | None:
        """The setting whose first seed is best on dev; if there is only one, that one."""
        if len(tries) == 1:
            return tries[0]
        values = []
        for tried in tries:
            place = self._place(cell, tried, self.seeds[0])
            value = self._attempt(lambda tried=tried: self._dev(cell, tried, self.seeds[0]), place, tried.name, failed)
            if value is not None:
                values.append((value, tried))
        if not values:
            return None
        best = max(values, key=lambda pair: pair[0])[1]
        say(f"chosen on dev: {best.name}")
        return best

    def _attempt(self, work: Any, place: Path, what: str, failed: list[str]) -> Any:
        """The result of `work`, or None if it fails; then the reason is stored. A failed teacher ends the sweep."""
        try:
            result = work()
            (place / ERROR).unlink(missing_ok=True)
            return result
        except Exception as error:
            if any(task.teacher_failed for task in self.tasks.values()):
                raise
            reason = " ".join(str(error).split()) or type(error).__name__
            if not isinstance(error, LimbeckError) and (place / "recipe.yaml").exists():
                (place / ERROR).write_text(traceback.format_exc(), encoding="utf-8")
                reason += f" (traceback in {place / ERROR})"
            say(f"{what} failed: {reason}")
            failed.append(f"{what}: {reason}")
            self.errors.append(reason)
            return None

    def _place(self, cell: Cell, tried: Cell, seed: int) -> Path:
        inner = [] if tried.full_name == cell.full_name else [tried.folder]
        return self.folder.joinpath(STUDENTS, cell.folder, *inner, f"seed-{seed}")

    def _student(self, cell: Cell, tried: Cell, seed: int) -> tuple[Task, Path, Matcher]:
        """A trained student, and its directory."""
        recipe, place = tried.with_seed(seed), self._place(cell, tried, seed)
        task = self.task(recipe)
        claim_folder(place, recipe)
        label = tried.full_name if len(self.seeds) == 1 else f"{tried.full_name}, seed {seed}"  # for checkpoints too
        student = train_student(task, recipe, label, place / "student", task.work / "stages")
        shutil.rmtree(place / "work", ignore_errors=True)
        return task, place, student

    def _dev(self, cell: Cell, tried: Cell, seed: int) -> float:
        """The student's quality on dev, from its file if possible."""
        known = self._place(cell, tried, seed) / "dev.json"
        if read_if_whole(known) is None:
            task, _, student = self._student(cell, tried, seed)
            dev = _dev_measure(task)
            if dev is None:
                raise LimbeckError(NO_DEV)
            write_sealed(known, dev(student))
        return float(next(iter(read_sealed(known).values())))

    def _measured(self, cell: Cell, tried: Cell, seed: int) -> Measured:
        """A run's result, from its files if possible."""
        place = self._place(cell, tried, seed)
        if read_if_whole(place / RESULT) is None:
            task, place, student = self._student(cell, tried, seed)
            measured = task.measure_student(cell.name, student, tried.recipe)
            dev = _dev_measure(task)
            if dev is not None and read_if_whole(place / "dev.json") is None:
                write_sealed(place / "dev.json", dev(student))
            save_measured(measured, place)
        else:
            claim_folder(place, tried.with_seed(seed))
            task = self.task(tried.with_seed(seed))
        quality = next(iter(read_sealed(place / "dev.json").values())) if (place / "dev.json").exists() else 0.0
        measured = read_measured(place, task.result_type)
        self.done.append((float(quality), cell, tried, seed))
        self.points.append((cell.settings, seed, measured))
        return measured

    def references(self) -> list[Measured]:
        """Teacher and baselines of every task, measured once."""
        found: list[Measured] = []
        for task in self.used:
            place = task.folder / "references"
            measured = measure_references(task, place)
            write_json(place / DONE, list(measured))
            for name, one in measured.items():
                known = self._named(one, task)
                self.measured_at.setdefault(known.row.name, []).append(str((place / name).relative_to(self.folder)))
                found.append(known)
        return found

    def _named(self, measured: Measured, task: Task) -> Measured:
        """A reference with a unique name, if several tasks have one."""
        teacher = self._teacher_name(task)
        if measured.row.kind == "teacher":
            return replace(measured, row=replace(measured.row, name=teacher), teacher=teacher)
        name = measured.row.name + (f", with {self.owners[shared_part(task.recipe)]}" if self.several else "")
        return replace(measured, row=replace(measured.row, name=name), teacher=teacher)

    def places(self) -> dict[str, list[str]]:
        """The directories of each row's measurements; there may be others, of settings that are no longer chosen."""
        found = dict(self.measured_at)
        for _, cell, tried, seed in self.done:
            place = self._place(cell, tried, seed).relative_to(self.folder)
            found.setdefault(cell.name, []).append(str(place))
        return found

    def keep_best(self) -> None:
        """Copy the student with the best first dev measure to the place of a run's student."""
        _, cell, tried, seed = max(self.done, key=lambda found: found[0])
        recipe, place = tried.with_seed(seed), self._place(cell, tried, seed)
        self.kept = KeptStudent(cell.name, recipe, self.task(recipe))
        kept, origin, known = self.folder / "student", self.folder / BEST, str(place.relative_to(self.folder))
        if not (place / "student").exists() and kept.exists() and origin.exists() and read_json(origin) == known:
            self.best = load_matcher(kept)
        else:
            self.best = self._student(cell, tried, seed)[2]
            origin.unlink(missing_ok=True)  # never with another student's weights
            with directory_atomically(kept) as folder:
                shutil.copytree(place / "student", folder, dirs_exist_ok=True)
            write_json(origin, known)
        if (place / SNAPSHOTS).exists():
            shutil.copytree(place / SNAPSHOTS, self.folder / SNAPSHOTS, dirs_exist_ok=True)

    def drop_students(self) -> None:
        for path in (self.folder / STUDENTS).rglob("student"):
            shutil.rmtree(path)


def _refuse_no_dev(task: Task) -> None:
    """Refuse to tune if settings cannot be compared on dev. A teacher with a model can always compare them."""
    teacher = task.recipe.teacher
    judges = task.judged_dev is not None or (teacher is not None and not teacher.only_scores)
    if not task.facts()["queries_dev"] or not (judges or _dev_measure(task) is not None):
        raise LimbeckError(NO_DEV)


def _read_teacher(task: Task) -> None:
    """Load an untrained teacher, or its scores, unless it has been measured and may not be needed."""
    teacher = task.recipe.teacher
    if teacher is None or teacher.train is not None or (task.folder / "references" / DONE).exists():
        return
    prepare_teacher(task)
    if teacher.only_scores:
        task.read_given_scores()


def _dev_measure(task: Task) -> DevMeasure | None:
    """How students are evaluated on dev; without labels this needs the teacher."""
    if task.judged_dev is None:
        prepare_teacher(task)
    return task.student_dev
