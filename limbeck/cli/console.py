"""How the command line shows progress, tables and errors."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from limbeck.progress import Advance

SILENCE = 10.0  # seconds between two lines where there is no terminal to draw a bar on

out = Console(width=None if sys.stdout.isatty() else 120)  # results
err = Console(stderr=True)  # progress and errors: a redirected result stays clean


class Bars:
    """Progress bars on a terminal."""

    def __init__(self) -> None:
        self.progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=28),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(compact=True),
            console=err,
            transient=True,
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
            spent = time.monotonic() - started
            if spent > 1 and not self.progress.tasks:
                err.print(f"[dim]{label}: {spent:.0f} s[/dim]", highlight=False)

    def say(self, message: str) -> None:
        err.print(message, highlight=False, markup=False)


class Lines:
    """A line now and then, for logs and pipes."""

    def __init__(self) -> None:
        self.depth = 0
        self.spoke = time.monotonic()

    @contextmanager
    def task(self, label: str, total: int | None) -> Iterator[Advance]:
        done, started = 0, time.monotonic()
        self.depth += 1

        def advance(count: int) -> None:
            nonlocal done
            done += count
            if time.monotonic() - self.spoke > SILENCE:
                spent = time.monotonic() - started
                self.say(f"{label}: {done:,}{f' of {total:,}' if total else ''}, {spent:.0f} s")

        try:
            yield advance
        finally:
            self.depth -= 1
            if time.monotonic() - started > SILENCE and not self.depth:
                self.say(f"{label}: done in {time.monotonic() - started:.0f} s")

    def say(self, message: str) -> None:
        self.spoke = time.monotonic()
        print(message, file=sys.stderr, flush=True)


def reporter() -> Bars | Lines:
    """Bars where somebody watches, lines elsewhere."""
    return Bars() if err.is_terminal else Lines()
