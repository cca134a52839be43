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

SILENCE, LONGEST_SILENCE = 10.0, 60.0  # seconds between two progress lines when there is no terminal


class PrintableConsole(Console):
    """A console where only our own styles have effect: escape sequences and markup in texts do nothing."""

    def __init__(self, stderr: bool = False, width: int | None = None) -> None:
        super().__init__(stderr=stderr, width=width, markup=False, highlight=False, emoji=False)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(printable(segment.text), segment.style)

    @property
    def file(self) -> IO[str]:
        """The underlying stream, without the wrappers of the progress bar and of `limbeck.printable`."""
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
            redirect_stdout=False,  # it would show escape sequences in others' output as colours
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
        spent = time.monotonic() - started  # not reported if the task fails or is interrupted
        if spent > 1 and not self.progress.tasks:
            err.print(f"{label}: {spent:.0f} s", style="dim")

    def say(self, message: str) -> None:
        err.print(message)


class Lines:
    """One line now and then, for logs and pipes: the outer task and the current inner one, less often in long tasks."""

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
        spent = time.monotonic() - task.started  # not reported if the task fails or is interrupted
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
    first: tuple[float, int] | None = None  # time of the first step, and units done by then

    def advance(self, count: int, now: float) -> None:
        self.done += count
        self.first = self.first or (now, self.done)

    def left(self, now: float) -> str:
        """The remaining time, from the speed since the first step, which includes what an earlier run did."""
        if not self.total or self.first is None or self.done <= self.first[1]:
            return ""
        began, before = self.first
        seconds = (now - began) * max(0, self.total - self.done) / (self.done - before)
        return f", about {_duration(seconds)} left"

    def __str__(self) -> str:
        return f"{self.label}: {self.done:,}" + (f" of {self.total:,}" if self.total else "")


def _duration(seconds: float) -> str:
    """A duration in two or three digits."""
    for unit, size in (("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:,.0f} {unit}"
    return f"{seconds:.0f} s"


def reporter() -> Bars | Lines:
    """Progress bars on a terminal, lines elsewhere."""
    return Bars() if err.is_terminal else Lines()
