"""Train candidates rung by rung, cheap ones first; stop those that another one makes pointless, and keep to the time.

A rung is some more stages of a candidate's recipe. Each rung is trained once and kept, so a killed run goes on.
"""

from __future__ import annotations

import shutil
import time
import traceback
from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from limbeck.errors import LimbeckError
from limbeck.files import slug
from limbeck.matchers import Matcher
from limbeck.progress import say
from limbeck.recipe.files import write_recipe
from limbeck.report.formatting import duration
from limbeck.runs.compress.bench import CompressBench
from limbeck.runs.compress.candidates import Candidate
from limbeck.runs.compress.clock import Clock
from limbeck.runs.compress.exam import Exam
from limbeck.runs.run_folder import STUDENTS
from limbeck.runs.task import Task
from limbeck.runs.train_student import train_student
from limbeck.sealed import read_if_whole, write_sealed
from limbeck.training.stages import OutOfTime

NOT_TRIED = "not tried: no time left"
AS_FAST = 1.05  # times: within the noise of a timing
CLEARLY_WORSE = 0.97  # times the quality of another student that is as fast
NO_CHANCE = 0.9  # times the quality of a finished student that is as fast; more steps help, but not as much
LEAST_GAIN = 1.01  # times the quality without labels, for a student that learns from labels
SPARE = 1.15  # an estimate is multiplied by this
RECORD = "progress.json"


@dataclass(frozen=True)
class Cost:
    """What a student costs its user."""

    ms: float  # of a query
    bytes: float  # of what is kept of a document

    def is_within(self, other: Cost) -> bool:
        """Whether it is at most as slow, within the noise of a timing, and stores no more."""
        return self.ms <= AS_FAST * other.ms and self.bytes <= other.bytes


@dataclass
class Progress:
    """How far a candidate has come."""

    rung: int = -1  # the last one that is finished
    dev: float = 0.0  # quality on dev after it
    first: float = 0.0  # quality on dev after the first rung
    begun: int = -1  # the last rung that was begun
    rate: float = 0.0  # seconds per step, dev included, of the last rung that one call trained; 0 if unknown
    note: str = ""  # why it did not go further
    over: bool = False  # whether it stays there: all rungs are done, or another candidate is better
    left_out: str | None = None  # why it is not worth measuring; empty if it is; None as long as that is open

    @property
    def has_student(self) -> bool:
        return self.rung >= 0

    @property
    def is_stopped(self) -> bool:
        """Whether another candidate made it pointless."""
        return self.over and bool(self.note)


class Ladder:
    """The candidates of one run, and what became of each."""

    def __init__(
        self, task: Task, bench: CompressBench, folder: Path, candidates: Sequence[Candidate], dev: Exam, clock: Clock
    ) -> None:
        self.task, self.bench, self.folder, self.dev, self.clock = task, bench, folder, dev, clock
        self.candidates = {candidate.name: candidate for candidate in candidates}
        self.progress = {name: self._read(name) for name in self.candidates}
        self.matchers: dict[str, Matcher] = {}
        self.changed = False  # whether anything was trained

    def place(self, name: str) -> Path:
        return self.folder / STUDENTS / slug(name)

    def student(self, name: str) -> Path:
        """The folder of a candidate's latest student."""
        return self.place(name) / f"rung-{self.progress[name].rung + 1}"

    def documents(self, name: str) -> Path:
        """Where its own document vectors are kept, if it has any."""
        return self.place(name) / "documents"

    def climb(self, reserve: Callable[[Collection[str]], float], ready: Callable[[str], None]) -> None:
        """Train as far as the time allows.

        `reserve` is the time to measure one more student, and those given if they are not measured yet. `ready` is
        called with every student that there is, again and again.
        """
        if not self.clock.was_finished:
            for known in self.progress.values():
                if not known.over:
                    known.left_out = None  # an earlier call decided on a student that may get better now
            self._climb(reserve, ready)
        for name in self.candidates:
            self._tidy(name)
        if not any(known.has_student for known in self.progress.values()):
            first = next(iter(self.progress.values()))
            raise LimbeckError(f"no student could be trained ({first.note}); run the command again")
        undecided = [name for name in self.kept if self.progress[name].left_out is None]
        if undecided:
            self._leave_out(undecided)

    def _climb(self, reserve: Callable[[Collection[str]], float], ready: Callable[[str], None]) -> None:
        longest = max(len(candidate.rungs) for candidate in self.candidates.values())
        for rung in range(longest):
            for name, candidate in self.candidates.items():
                known = self.progress[name]
                if rung < len(candidate.rungs) and known.rung == rung - 1 and not known.over:
                    self._train(name, rung, reserve)
                if name in self.kept:
                    ready(name)
            if rung + 1 < longest:
                self._stop_dominated(rung)

    @property
    def kept(self) -> list[str]:
        """The students to measure."""
        return [
            name
            for name, known in self.progress.items()
            if known.has_student and not known.is_stopped and not known.left_out
        ]

    def notes(self) -> dict[str, str]:
        """What became of the candidates that did not go all the way."""
        found = {name: known.left_out or known.note for name, known in self.progress.items()}
        return {name: note for name, note in found.items() if note}

    def _train(self, name: str, rung: int, reserve: Callable[[Collection[str]], float]) -> None:
        """Train a rung if there is time. The first student of a run is trained in any case."""
        candidate = self.candidates[name]
        expected = self._estimate(name, rung)
        left = self.clock.left - reserve([other for other in self.kept if other != name])
        alone = not self.changed and not any(known.has_student for known in self.progress.values())
        if left <= expected and not alone:
            self._no_time(name)
            return
        about = f", about {duration(SPARE * expected)}" if expected >= 1 else ""
        say(f"{name}: rung {rung + 1} of {len(candidate.rungs)}{about}")
        deadline = None if alone or left == float("inf") else time.monotonic() + left
        try:
            self._train_rung(name, rung, deadline)
        except OutOfTime as reached:
            self._no_time(name, f" (after {reached})")
        except Exception as error:
            if self.task.teacher_failed:
                raise
            self._fail(name, error)
        else:
            self._judge(name)

    def _fail(self, name: str, error: Exception) -> None:
        known = self.progress[name]
        known.note = f"failed: {' '.join(str(error).split()) or type(error).__name__}"
        if not isinstance(error, LimbeckError):
            (self.place(name) / "error.txt").write_text(traceback.format_exc(), encoding="utf-8")
            known.note += f" (traceback in {self.place(name) / 'error.txt'})"
        say(f"{name} {known.note}")
        self._write(name)

    def _judge(self, name: str) -> None:
        """Say how good a rung is, and stop the student if its labels added nothing."""
        known = self.progress[name]
        steps_done = self._steps(name)
        say(f"{name}: {known.dev:.3f} on dev " + (f"after {steps_done} steps" if steps_done else "in closed form"))
        self._stop_without_gain(name)
        self._write(name)
        if known.over and not known.is_stopped:
            self._leave_out([name])
        self._tidy(name)

    def _stop_without_gain(self, name: str) -> None:
        """Stop a student that learnt from labels if they added nothing to the same training without them."""
        known, other = self.progress[name], self.candidates[name].without_labels
        without = self.progress[other] if other is not None else None
        if without is not None and without.has_student and known.dev < LEAST_GAIN * without.first:
            told = f"labels add less than 1% to {other} on dev ({known.dev:.3f} against {without.first:.3f})"
            known.note, known.over = told, True
            say(f"{name}: {told}")

    def _train_rung(self, name: str, rung: int, deadline: float | None) -> None:
        """Train and compare on dev. The time of a rung that an earlier call began is no measure of its steps."""
        place, candidate, known = self.place(name), self.candidates[name], self.progress[name]
        began, is_whole = time.monotonic(), known.begun < rung
        known.begun, known.note, known.left_out, self.changed = rung, "", None, True
        self._write(name)
        recipe, folder = candidate.recipe_at(rung), place / f"rung-{rung + 1}"
        train_student(self.task, recipe, name, folder, deadline=deadline)
        write_recipe(recipe, place / "recipe.yaml")
        self.matchers[name] = self.bench.load(folder, self.documents(name))
        known.dev = self.dev.judge(self.bench.ranking(self.matchers[name], self.dev)).means[self.dev.measure]
        known.rung, known.over = rung, rung + 1 == len(candidate.rungs)
        known.first = known.dev if rung == 0 else known.first
        steps = candidate.new_steps(rung)
        if is_whole and steps:
            known.rate = (time.monotonic() - began) / steps

    def _no_time(self, name: str, detail: str = "") -> None:
        known = self.progress[name]
        tried = detail or known.has_student
        reached = f"trained for {self._steps(name)} steps: no time left for more" if known.has_student else NOT_TRIED
        known.note = reached if not detail or known.has_student else f"not finished: no time left{detail}"
        say(f"{name}: {known.note}" if tried else f"{name} is {known.note}")
        self._write(name)

    def _steps(self, name: str) -> int:
        reached = self.progress[name].rung
        return sum(self.candidates[name].new_steps(rung) for rung in range(reached + 1))

    def _estimate(self, name: str, rung: int) -> float:
        """Seconds of a rung: from the candidate's last rung, or from the one whose steps cost nearest to its own.

        A static encoder's steps say nothing of those of a transformer, and the other way round.
        """
        candidate, own = self.candidates[name], self.progress[name]
        steps = candidate.new_steps(rung)
        if own.rate:
            return SPARE * own.rate * steps
        seen = [
            (abs(self.candidates[other].cost - candidate.cost), known.rate / self.candidates[other].cost)
            for other, known in self.progress.items()
            if known.rate and self.candidates[other].is_static == candidate.is_static
        ]
        return SPARE * min(seen)[1] * candidate.cost * steps if seen else 0.0

    def _stop_dominated(self, rung: int) -> None:
        """Stop students that could go on and have no chance against another one that costs no more.

        One that was trained in the same rung has to be as good. Any other, such as one in closed form or one that
        learnt from labels, has to be much better: more steps may still help.
        """
        going = [name for name, known in self.progress.items() if known.rung == rung and not known.over]
        alike = {name for name in going if self.candidates[name].rungs[rung]}
        rivals = self.kept
        costs = self._costs(rivals) if going and len(rivals) > 1 else {}
        for name in reversed(going):  # of two that are alike, the cheaper one goes on
            own = self.progress[name]
            for other in rivals:
                known = self.progress[other]
                if other == name or known.is_stopped or not costs[other].is_within(costs[name]):
                    continue
                if known.dev >= own.dev if {name, other} <= alike else own.dev < NO_CHANCE * known.dev:
                    told = f"{other} is as good or better on dev ({known.dev:.3f} against {own.dev:.3f}) and as fast"
                    own.note, own.over = f"stopped after {self._steps(name)} steps: {told}", True
                    say(f"{name}: {own.note}")
                    self._write(name)
                    break

    def _leave_out(self, names: Collection[str]) -> None:
        """Leave out students that had their time and are clearly worse than another that costs no more.

        The decision is kept: a later call that trains nothing measures the same students.
        """
        there = self.kept
        costs = self._costs(there) if len(there) > 1 else {}
        dev = {name: self.progress[name].dev for name in there}
        for name in names:
            own = self.progress[name]
            cheaper = [other for other in there if other != name and costs[other].is_within(costs[name])]
            best = max(cheaper, key=dev.__getitem__, default=name)
            own.left_out = ""
            if dev[name] < CLEARLY_WORSE * dev[best]:
                told = f"{best} is better on dev ({dev[best]:.3f} against {dev[name]:.3f}) and as fast"
                own.left_out = f"left out after {self._steps(name)} steps: {told}"
                say(f"{name}: {own.left_out}")
            self._write(name)

    def _costs(self, names: Sequence[str]) -> dict[str, Cost]:
        for name in names:
            if name not in self.matchers:
                self.matchers[name] = self.bench.load(self.student(name), self.documents(name))
        ms = self.bench.times({name: self.bench.call(self.matchers[name], self.dev) for name in names}, self.dev)
        return {name: Cost(ms[name], self.bench.bytes_per_document(self.matchers[name])) for name in names}

    def _tidy(self, name: str) -> None:
        """Remove the students of earlier rungs, and the work of one that goes no further."""
        known, place = self.progress[name], self.place(name)
        for earlier in range(1, known.rung + 1):
            shutil.rmtree(place / f"rung-{earlier}", ignore_errors=True)
        if known.over:
            shutil.rmtree(place / "work", ignore_errors=True)

    def _read(self, name: str) -> Progress:
        found = read_if_whole(self.place(name) / RECORD) if self.place(name).exists() else None
        known = Progress(**found) if found is not None else Progress()
        if known.has_student and not (self.place(name) / f"rung-{known.rung + 1}").is_dir():
            return Progress(begun=known.begun)
        return known

    def _write(self, name: str) -> None:
        write_sealed(self.place(name) / RECORD, asdict(self.progress[name]))
        self.clock.save()
