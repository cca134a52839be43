"""How progress, tables and errors are shown to a person."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO

from rich.console import Console, ConsoleOptions, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.segment import Segment

from limbeck.printable import printable
from limbeck.progress import Advance

SILENCE, LONGEST_SILENCE = 10.0, 60.0  # seconds between two lines where there is no terminal to draw a bar on


class PrintableConsole(Console):
    """A console that colours by itself alone: texts bring neither escape sequences nor markup."""

    def __init__(self, stderr: bool = False, width: int | None = None) -> None:
        super().__init__(stderr=stderr, width=width, markup=False, highlight=False, emoji=False)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(printable(segment.text), segment.style)

    @property
    def file(self) -> IO[str]:
        """The stream itself, below whatever a bar and `limbeck.printable` put around it."""
        stream = super().file
        while (inner := getattr(stream, "rich_proxied_file", None)) is not None:
            stream = inner
        return stream

    @file.setter
    def file(self, new_file: IO[str]) -> None:
        self._file = new_file


out = PrintableConsole(width=None if sys.stdout.isatty() else 120)  # results
err = PrintableConsole(stderr=True)  # progress and errors: a redirected result stays clean


class Bars:
    """Progress bars on a terminal."""

    def __init__(self) -> None:
        self.progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=28),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(compact=True),
            console=err,
            transient=True,
            redirect_stdout=False,  # it would turn escape sequences of what others print into colours
            redirect_stderr=False,
            speed_estimate_period=math.inf,  # the last 1,000 steps, however far apart they are
        )

    @contextmanager
    def task(self, label: str, total: int | None) -> Iterator[Advance]:
        if not self.progress.live.is_started:
            self.progress.start()
        task = self.progress.add_task(label, total=total)
        started = time.monotonic()
        try:
            yield lambda count: self.progress.advance(task, count)
        finally:
            self.progress.remove_task(task)
            if not self.progress.tasks:
                self.progress.stop()
        spent = time.monotonic() - started  # told of a task that came to its end, not of one that was cut short
        if spent > 1 and not self.progress.tasks:
            err.print(f"{label}: {spent:.0f} s", style="dim")

    def say(self, message: str) -> None:
        err.print(message)


class Lines:
    """A line now and then, for logs and pipes: the whole task, and what it is at; rarer as it gets longer."""

    def __init__(self) -> None:
        self.tasks: list[_Task] = []
        self.spoke = time.monotonic()

    @contextmanager
    def task(self, label: str, total: int | None) -> Iterator[Advance]:
        task = _Task(label, total, time.monotonic())
        self.tasks.append(task)

        def advance(count: int) -> None:
            now = time.monotonic()
            task.advance(count, now)
            spent = now - self.tasks[0].started
            if now - self.spoke > max(SILENCE, min(LONGEST_SILENCE, spent / 20)):
                within = f" ({task})" if task is not self.tasks[0] else ""
                self.say(f"{self.tasks[0]}, {spent:.0f} s{self.tasks[0].left(now)}{within}")

        try:
            yield advance
        finally:
            self.tasks.remove(task)
        spent = time.monotonic() - task.started  # told of a task that came to its end, not of one that was cut short
        if spent > SILENCE and not self.tasks:
            self.say(f"{label}: done in {spent:.0f} s")

    def say(self, message: str) -> None:
        self.spoke = time.monotonic()
        print(printable(message), file=sys.stderr, flush=True)


@dataclass
class _Task:
    label: str
    total: int | None
    started: float
    done: int = 0
    first: tuple[float, int] | None = None  # when the first step was told, and what was done by then

    def advance(self, count: int, now: float) -> None:
        self.done += count
        self.first = self.first or (now, self.done)

    def left(self, now: float) -> str:
        """How long it will take yet, by its speed since the first step: what an earlier run did comes with that."""
        if not self.total or self.first is None or self.done <= self.first[1]:
            return ""
        began, before = self.first
        seconds = (now - began) * max(0, self.total - self.done) / (self.done - before)
        return f", about {_duration(seconds)} left"

    def __str__(self) -> str:
        return f"{self.label}: {self.done:,}" + (f" of {self.total:,}" if self.total else "")


def _duration(seconds: float) -> str:
    """A time in two or three digits."""
    for unit, size in (("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:,.0f} {unit}"
    return f"{seconds:.0f} s"


def reporter() -> Bars | Lines:
    """Bars where somebody watches, lines elsewhere."""
    return Bars() if err.is_terminal else Lines()
