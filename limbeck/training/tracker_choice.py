"""Which trackers training reports to. This half needs no torch, so that a mistyped name is reported at once.

    with using_trackers(["tensorboard"]):
        distill("mine.yaml")

A tracker is not in the recipe and changes no number of a run, so a run can be resumed with another one or with none.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from importlib.util import find_spec

from limbeck.errors import LimbeckError, did_you_mean

TRACKERS = ("tensorboard", "wandb", "mlflow", "trackio")  # names of packages, and of integrations of transformers
OPTION = "--report-to"

_asked: ContextVar[tuple[str, ...]] = ContextVar("limbeck_trackers", default=())


def require_trackers(names: Sequence[str]) -> tuple[str, ...]:
    """The trackers without repetitions; an unknown one is refused, and one whose package is not installed."""
    asked = [names] if isinstance(names, str) else names
    for name in asked:
        if name not in TRACKERS:
            raise LimbeckError(f"{OPTION} {name}: no such tracker; {did_you_mean(name, list(TRACKERS))}")
        if find_spec(name) is None:
            raise LimbeckError(f"{OPTION} {name}: {name} is not installed; run `pip install {name}`")
    return tuple(dict.fromkeys(asked))


@contextmanager
def using_trackers(names: Sequence[str]) -> Iterator[None]:
    """Report the training inside the block to these trackers; none do not change the choice."""
    token = _asked.set(require_trackers(names) or _asked.get())
    try:
        yield
    finally:
        _asked.reset(token)


def asked_trackers() -> tuple[str, ...]:
    """The trackers to report to."""
    return _asked.get()
