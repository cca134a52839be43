"""Progress of long work, without printing: library code announces, the command line shows.

    with progress("Encoding", total=len(texts)) as advance:
        for block in blocks:
            ...
            advance(len(block))

Nothing is shown unless somebody installed a reporter with `reporting`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sized
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import Protocol, TypeVar

T = TypeVar("T")
Advance = Callable[[int], None]


class Reporter(Protocol):
    """Whoever shows progress to a person."""

    def task(self, label: str, total: int | None) -> AbstractContextManager[Advance]: ...

    def say(self, message: str) -> None: ...


_reporter: ContextVar[Reporter | None] = ContextVar("limbeck_reporter", default=None)


@contextmanager
def reporting(reporter: Reporter | None) -> Iterator[None]:
    """Show the progress of everything inside the block through `reporter`; None shows nothing."""
    token = _reporter.set(reporter)
    try:
        yield
    finally:
        _reporter.reset(token)


@contextmanager
def progress(label: str, total: int | None = None) -> Iterator[Advance]:
    """Announce a task of `total` units; the block gets a function that advances it."""
    reporter = _reporter.get()
    if reporter is None:
        yield lambda _: None
        return
    with reporter.task(label, total) as advance:
        yield advance


def track(items: Iterable[T], label: str, total: int | None = None) -> Iterator[T]:
    """Iterate over `items` as a task that advances by one each."""
    if total is None and isinstance(items, Sized):
        total = len(items)
    with progress(label, total) as advance:
        for item in items:
            yield item
            advance(1)


def say(message: str) -> None:
    """One line for the person who watches, if there is one."""
    reporter = _reporter.get()
    if reporter is not None:
        reporter.say(message)
