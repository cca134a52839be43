"""What is done with every matcher that `load` returns: another part of the package can choose how it computes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from limbeck.matchers.base import Matcher

Finish = Callable[["Matcher"], "Matcher"]
_finish: ContextVar[Finish | None] = ContextVar("limbeck_after_loading", default=None)


def asked_finish() -> Finish | None:
    """What is done with matchers here, for what loads one later."""
    return _finish.get()


@contextmanager
def after_loading(finish: Finish | None) -> Iterator[None]:
    """Pass the matchers that are loaded inside the block through `finish`."""
    token = _finish.set(finish)
    try:
        yield
    finally:
        _finish.reset(token)


def finished(matcher: Matcher) -> Matcher:
    """A matcher that was just loaded, as it was asked for."""
    finish = _finish.get()
    return matcher if finish is None else finish(matcher)
