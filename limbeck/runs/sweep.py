"""A grid of runs: every combination of some settings, several seeds, one table with significance.

    sweep("demo", over=["objective=one_hot,softmax_ce", "student.dim=64,128"], seeds=3)

A sweep's directory is like a run's, with more than one student:

    students/NAME/seed-0/    one run: recipe.yaml, student/, result.json
    student/                 the best student on dev

Runs with the same data and teacher share both: a teacher is trained once and scores a pair once. A finished run is
not repeated, so an interrupted sweep can continue, and a sweep with more values or seeds runs only the new ones. A
run that fails is named in the table and tried again the next time; the others continue.
"""

from __future__ import annotations

import json
import shlex
import shutil
import time
import traceback
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from limbeck.errors import LimbeckError, did_you_mean
from limbeck.files import alone_in, digest, directory_atomically, read_json, write_json
from limbeck.matchers import Matcher
from limbeck.matchers import load as load_matcher
from limbeck.matchers.device import chosen_device
from limbeck.matchers.device_choice import restoring_device, use_recipe_device
from limbeck.progress import say
from limbeck.recipe.recipe import Recipe
from limbeck.report.analyses.score_distributions import SNAPSHOTS
from limbeck.runs.finish_run import Trained, answer_questions, finish_run
from limbeck.runs.grid import Axis, Cell, cells, load_base, parse_axis, refuse_repeated, refuse_unused
from limbeck.runs.measured import RESULT, read_measured, save_measured
from limbeck.runs.open_task import open_task
from limbeck.runs.pair_classes import with_classes
from limbeck.runs.references import measure_references
from limbeck.runs.results import Measured, over_seeds
from limbeck.runs.run_folder import METRICS, STUDENTS, Result, claim_folder, finished_run, read_results
from limbeck.runs.task import DevMeasure, Task
from limbeck.runs.teacher_step import prepare_teacher
from limbeck.runs.train_student import train_student
from limbeck.sealed import read_if_whole, read_sealed, write_sealed

PLAN = "sweep.json"
MEASURED = "measured.json"
DONE = "done.json"  # in references/: all references are measured
BEST = "best.json"  # which student was copied; its own weights may have been dropped
ERROR = "error.txt"  # in a student's folder: why it failed
NO_DEV = "--tune requires dev queries; give data.dev, or drop --tune"


@restoring_device
def sweep(
    recipe: str | Path | dict[str, Any] | Recipe,
    over: Sequence[str | Axis] = (),
    tune: Sequence[str | Axis] = (),
    seeds: int = 1,
    out: str | Path | None = None,
    against: str | None = None,
    overrides: Sequence[str] = (),
    questions: Sequence[str] = (),
    note: str = "",
    keep: bool = True,
) -> Result:
    """Run the grid of `over` with `seeds` seeds, and combine the results.

    `tune` spans an inner grid in every cell: its values are tried with the first seed, the best on dev is chosen, and
    only that one is run with all seeds and measured on test. `against` names the cell that the others are tested
    against, by default the first. The best cell on dev answers `questions`, for the report. Without `keep`, the
    students' weights are deleted after they are measured, except the best one's.
    """
    axes = [axis if isinstance(axis, Axis) else parse_axis(axis) for axis in over]
    tuned = [axis if isinstance(axis, Axis) else parse_axis(axis, "--tune") for axis in tune]
    refuse_repeated([*axes, *tuned])
    base = load_base(recipe, overrides, [*axes, *tuned])
    use_recipe_device(base.device)
    chosen_device()  # refuse an unknown device before anything is written
    grid = [replace(cell, recipe=with_classes(cell.recipe)) for cell in cells(base, axes)]
    refuse_unused([*axes, *tuned], grid)
    tries = {cell.name: cells(cell.recipe, tuned, cell) for cell in grid}
    tries = {name: [replace(one, recipe=with_classes(one.recipe)) for one in some] for name, some in tries.items()}
    reference = _reference([cell.name for cell in grid], against)
    if seeds < 1:
        raise LimbeckError(f"{seeds} seeds are too few; give 1 or more")
    folder = _place_for(out, base)
    plan = {"over": [asdict(axis) for axis in axes], "tune": [asdict(axis) for axis in tuned], "seeds": seeds}
    plan = json.loads(json.dumps(plan | {"against": reference}))
    if _is_finished(folder, plan):
        return finished_run(folder)
    began = time.monotonic()
    work = _Sweep(base, folder, [base.seed + number for number in range(seeds)], several=_differ(tries))
    for cell in [tried for some in tries.values() for tried in some]:
        work.check(cell, tuned=len(tuned) > 0)
    claim_folder(folder, base)  # only now, so that a mistake leaves no folder behind
    with alone_in(folder):
        for task in work.tasks.values():
            task.folder.mkdir(parents=True, exist_ok=True)
        measured: list[Measured] = []
        for number, cell in enumerate(grid, start=1):
            say(f"{number} of {len(grid)}: {cell.name}")
            found = work.cell(cell, tries[cell.name])
            measured += [] if found is None else [found]
        if not measured:
            raise LimbeckError(f"every run failed, the first with: {work.errors[0]}; fix it and run again")
        work.keep_best()
        references = work.references()
        if reference in work.lost:
            untested = f"{reference} failed, so there is no comparison with it."
            say(untested)
            note, plan = f"{note} {untested}".strip(), plan | {"against_failed": True}
        answer_questions(work.home, folder, work.best_name, work.best, questions)
        told = plan | {"command": _command(recipe, overrides, axes, tuned, seeds, against, folder, keep)}
        trained = Trained(work.used, references, measured, work.points, work.lost)
        result = finish_run(base, folder, trained, began, axes, reference, note, told)
        for task in work.tasks.values():
            shutil.rmtree(task.work, ignore_errors=True)
        write_json(folder / MEASURED, work.places())
        write_json(folder / PLAN, plan)  # last: a plan with older results would look finished
        if not keep:
            work.drop_students()
        return result


def _place_for(out: str | Path | None, base: Recipe) -> Path:
    """The sweep's directory, which may exist if it belongs to the same recipe."""
    folder = Path(out) if out is not None else Path("runs") / f"{base.name}-sweep"
    if (folder / METRICS).exists() and not (folder / STUDENTS).exists():
        raise LimbeckError(f"{folder}: contains a run of `limbeck distill`; choose another --out")
    if folder.exists():
        claim_folder(folder, base)
    return folder


def _command(
    recipe: str | Path | dict[str, Any] | Recipe,
    overrides: Sequence[str],
    axes: Sequence[Axis],
    tuned: Sequence[Axis],
    seeds: int,
    against: str | None,
    folder: Path,
    keep: bool,
) -> str:
    """The command line of a sweep; a recipe from Python is named by its file in the directory, with its overrides."""
    named = isinstance(recipe, str | Path)
    options = [("--set", text) for text in overrides if named]
    options += [("--over", str(axis)) for axis in axes] + [("--tune", str(axis)) for axis in tuned]
    options += [("--seeds", str(seeds))] + ([("--against", against)] if against is not None else [])
    words = ["limbeck", "sweep", str(recipe) if named else str(folder / "recipe.yaml")]
    words += [word for option in options for word in option] + ["--out", str(folder)]
    return shlex.join(words + ([] if keep else ["--drop-students"]))


def _is_finished(folder: Path, plan: dict[str, Any]) -> bool:
    """Whether this grid is finished and no run of it failed."""
    if not all((folder / name).exists() for name in (METRICS, MEASURED, PLAN)) or read_json(folder / PLAN) != plan:
        return False
    return not any(row.failed for row in read_results(folder).rows)


def _reference(names: list[str], against: str | None) -> str:
    if against is None:
        return names[0]
    if against not in names:
        raise LimbeckError(f"--against {against}: this sweep has no such row; {did_you_mean(against, names)}")
    return against


def _shared(recipe: Recipe) -> str:
    """What must be equal for two runs to share data, teacher and measurements."""
    return digest(*(json.dumps(recipe.model_dump(mode="json")[part]) for part in ("data", "teacher", "evaluation")))


def _differ(tries: dict[str, list[Cell]]) -> bool:
    return len({_shared(cell.recipe) for some in tries.values() for cell in some}) > 1


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


class _Sweep:
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
        key = _shared(recipe)
        if key not in self.tasks:
            place = self.folder / "shared" / key[:8] if self.several else self.folder
            self.tasks[key] = open_task(recipe, place)
        return self.tasks[key]

    def check(self, cell: Cell, tuned: bool) -> None:
        """Read the data of a cell; report problems with them, or with tuning, once and before training."""
        recipe = cell.with_seed(self.seeds[0])
        known = _shared(recipe) in self.tasks
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
        return f"teacher of {self.owners[_shared(task.recipe)]}" if self.several else "teacher"

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
        self.owners.setdefault(_shared(task.recipe), cell.name)
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
        student = train_student(task, recipe, label, place / "student")
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
        name = f"{measured.row.name}, with {self.owners[_shared(task.recipe)]}" if self.several else measured.row.name
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
        self.best_name, place = cell.name, self._place(cell, tried, seed)
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
