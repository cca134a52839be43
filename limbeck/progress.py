"""Progress of long work: library code reports it, and the command line shows it.

    with progress("Encoding", total=len(texts)) as advance:
        for block in blocks:
            ...
            advance(len(block))

Nothing is shown unless a reporter is installed with `reporting`. A task inside another task with the same name counts
as a part of it: it advances the outer task, which then does not have to wait for the end of a block.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sized
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Protocol, TypeVar

T = TypeVar("T")
Advance = Callable[[int], None]


class Reporter(Protocol):
    """Shows progress to a person."""

    def task(self, label: str, total: int | None) -> AbstractContextManager[Advance]: ...

    def say(self, message: str) -> None: ...


_reporter: ContextVar[Reporter | None] = ContextVar("limbeck_reporter", default=None)


@contextmanager
def reporting(reporter: Reporter | None) -> Iterator[None]:
    """Show the progress of the block through `reporter`; None shows nothing."""
    token = _reporter.set(reporter)
    try:
        yield
    finally:
        _reporter.reset(token)


def has_reporter() -> bool:
    """Whether a reporter is installed already."""
    return _reporter.get() is not None


@dataclass(eq=False)
class _Task:
    label: str
    show: Advance
    ahead: int = 0  # units that inner tasks have reported already

    def advance(self, count: int) -> None:
        self.show(count - min(count, self.ahead))
        self.ahead -= min(count, self.ahead)

    def part(self, count: int) -> None:
        self.show(count)
        self.ahead += count


_tasks: list[_Task] = []


@contextmanager
def progress(label: str, total: int | None = None) -> Iterator[Advance]:
    """Announce a task of `total` units; the block gets a function that advances it."""
    reporter = _reporter.get()
    if reporter is None:
        yield lambda _: None
        return
    is_part = bool(_tasks) and _tasks[-1].label == label
    with nullcontext(_tasks[-1].part) if is_part else reporter.task(label, total) as show:
        task = _Task(label, show)
        _tasks.append(task)
        try:
            yield task.advance
        finally:
            _tasks.remove(task)


def track(items: Iterable[T], label: str, total: int | None = None) -> Iterator[T]:
    """Iterate over `items` as a task that advances by one each."""
    if total is None and isinstance(items, Sized):
        total = len(items)
    with progress(label, total) as advance:
        for item in items:
            yield item
            advance(1)


def say(message: str) -> None:
    """Show one line, if a reporter is installed."""
    reporter = _reporter.get()
    if reporter is not None:
        reporter.say(message)
