"""The models that a run compares, each measured in its runtimes."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from limbeck.evaluation import RankingResult
from limbeck.files import slug
from limbeck.matchers import Matcher
from limbeck.progress import say
from limbeck.runs.compress.bench import BLOCK, CompressBench
from limbeck.runs.compress.clock import Clock
from limbeck.runs.compress.exam import Exam
from limbeck.runs.measured import once
from limbeck.runs.results import Measured, RowKind
from limbeck.runtimes.use import TORCH
from limbeck.sealed import read_if_whole, write_sealed

MEASURED, COST = "measured", "cost.json"
FEW = 4  # queries, to time a model alone


@dataclass(frozen=True)
class Contender:
    """A model in a runtime, measured; its work at query time is kept for the timing."""

    measured: Measured
    call: Callable[[str], object]
    model: str  # its name without the runtime
    version: str  # of its weights: a student's rung
    ms: float  # of a query, timed alone on a few; for estimates and for tables of unfinished runs


class Contenders:
    """The models of one run, by the names of their rows."""

    def __init__(self, bench: CompressBench, exam: Exam, folder: Path, clock: Clock) -> None:
        self.bench, self.exam, self.folder, self.clock = bench, exam, folder, clock
        self.rows: dict[str, Contender] = {}
        self.spent: dict[str, float] = {}  # the longest time to measure a model, by runtime

    def has(self, model: str, version: str) -> bool:
        """Whether a model was measured with these weights."""
        return model in self.rows and self.rows[model].version == version

    def of(self, models: set[str]) -> dict[str, Contender]:
        """The rows of some models."""
        return {name: row for name, row in self.rows.items() if row.model in models}

    def add(self, row: str, measured: Measured, call: Callable[[str], object]) -> None:
        """Add a row that is not a model of its own and takes no time to measure."""
        ms = self.bench.times({row: call}, self.exam, FEW)[row]
        self.rows[row] = Contender(measured, call, row, "", ms)

    def measure(
        self, name: str, kind: RowKind, load: Callable[[], Matcher], version: str = "", only_torch: bool = False
    ) -> None:
        """Measure a model in every runtime, each with its own copy, so that they can be timed in turns.

        Torch comes first: it computes the document vectors that the others search. The other runtimes of a student are
        left out if there is no time left. Rows of earlier weights are dropped.
        """
        self.rows = {row: each for row, each in self.rows.items() if each.model != name}
        first = load()
        for runtime in [TORCH] if only_torch else self.bench.runtimes_of(first):
            row, began = name if runtime == TORCH else f"{name}, {runtime}", time.monotonic()
            late = self._cost(row, version) is None and self.clock.left < self.spent.get(runtime, 0.0)
            if kind == "student" and runtime != TORCH and late:
                say(f"{row}: not measured, no time left")
                continue
            own = first if runtime == TORCH else load()
            if not self.bench.in_runtime(own, runtime):
                continue
            role: RowKind = "baseline" if kind == "teacher" and runtime != TORCH else kind
            found, call = self._once(row, role, own, version, began), self.bench.call(own, self.exam)
            cost = self._timed(row, version, call)
            self.rows[row] = Contender(found, call, name, version, cost["ms"])
            self.spent[runtime] = max(self.spent.get(runtime, 0.0), cost["seconds"])
            self.clock.save()

    def _place(self, row: str) -> Path:
        return self.folder / MEASURED / slug(row)

    def _once(self, row: str, role: RowKind, own: Matcher, version: str, began: float) -> Measured:
        """Measure a row, or read it if it is on disk; the seconds since `began` are kept with it."""
        place = self._place(row)

        def measure() -> Measured:
            say(f"Measuring {row}")
            found = self.bench.measured(row, role, own, self.exam, self.exam.teacher if role == "teacher" else None)
            write_sealed(place / COST, {"of": version, "seconds": time.monotonic() - began})
            return found

        return once(place, measure, RankingResult, version)

    def _cost(self, row: str, version: str) -> dict[str, Any] | None:
        """What was noted when these weights were measured; None if they are not measured yet."""
        known = read_if_whole(self._place(row) / COST)
        return known if known is not None and known["of"] == version else None

    def _timed(self, row: str, version: str, call: Callable[[str], object]) -> dict[str, Any]:
        """What was noted of a row, with its milliseconds per query; these are timed once, alone, on a few queries."""
        known = self._cost(row, version) or {"of": version, "seconds": 0.0}
        if known.get("threads") != self.bench.threads:
            ms = self.bench.times({row: call}, self.exam, FEW)[row]
            known |= {"ms": ms, "threads": self.bench.threads}
            write_sealed(self._place(row) / COST, known)
        return known

    def reserve(self, students: int) -> float:
        """Seconds to measure so many students, each in half of the time of the slowest model, and to time all rows."""
        calls = len(self.bench.timed(self.exam)) * (1 + 1 / BLOCK)  # one of each turn warms up
        timing = calls * sum(row.ms for row in self.rows.values()) / 1000
        return 5.0 + students * sum(self.spent.values()) / 2 + timing
