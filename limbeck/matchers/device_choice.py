"""The requested device for models. This module needs no torch, so that a mistyped name is reported at once.

The first of these that is given decides: `device=` of a function or `--device` of a command; the `device` of a recipe;
LIMBECK_DEVICE; a GPU if CUDA sees one; the CPU. Apple's `mps` is only used if you ask for it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import ParamSpec, TypeVar

from limbeck.errors import LimbeckError

VARIABLE = "LIMBECK_DEVICE"
NAMES = r"cpu|mps|cuda(:\d+)?"

P = ParamSpec("P")
R = TypeVar("R")
_asked: ContextVar[str | None] = ContextVar("limbeck_device", default=None)


def check_device_name(name: str, source: str = "device") -> str:
    """Refuse a name that is not a device; `chosen_device` checks whether the device exists."""
    if not re.fullmatch(NAMES, name):
        raise LimbeckError(f"{source} {name!r}: is not a device; use cpu, cuda, cuda:1 or mps")
    return name


def asked_device() -> str | None:
    """The requested device, if any."""
    asked = _asked.get()
    if asked is not None:
        return asked
    name = os.environ.get(VARIABLE)
    return check_device_name(name, VARIABLE) if name else None


@contextmanager
def using_device(name: str | None) -> Iterator[None]:
    """Run the models inside the block on a device; None does not change the choice."""
    token = _asked.set(check_device_name(name) if name is not None else _asked.get())
    try:
        yield
    finally:
        _asked.reset(token)


def restoring_device(function: Callable[P, R]) -> Callable[P, R]:
    """Allow a function to call `use_recipe_device` for the rest of its run."""

    @wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        with using_device(None):
            return function(*args, **kwargs)

    return run


def use_recipe_device(name: str | None) -> None:
    """Run models on a recipe's device, unless a caller requested another; only inside `restoring_device`."""
    _asked.set(_asked.get() or name)
