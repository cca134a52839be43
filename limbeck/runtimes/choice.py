"""Which runtime models are asked to run in. This half needs no torch, so that a mistyped name is reported at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from limbeck.errors import LimbeckError, did_you_mean
from limbeck.matchers.after_loading import after_loading

if TYPE_CHECKING:
    from limbeck.matchers.base import Matcher

AUTO = "auto"
OPENVINO = "openvino"
CALIBRATED = "openvino-int8"  # needs texts, to see the range of each layer's inputs
PACKAGES = {  # what each runtime needs to run a graph and, last, to make one; and the extra that installs it
    "torch": ((), ""),
    "onnx": (("onnxruntime", "onnx"), "onnx"),
    "int8": (("onnxruntime", "onnx"), "onnx"),
    OPENVINO: (("openvino", "onnxruntime", "onnx"), "openvino"),
    CALIBRATED: (("openvino", "nncf", "onnxruntime", "onnx"), "openvino"),
}
RUNTIMES = tuple(PACKAGES)
FLOAT32 = ("torch", "onnx", OPENVINO)  # the same numbers to 1e-4, so the same identity of what is stored


def missing_package(runtime: str, only_run: bool = False) -> str | None:
    """The first package that a runtime needs and that is not installed; `only_run` graphs that are there already."""
    needed = PACKAGES[runtime][0][:1] if only_run else PACKAGES[runtime][0]
    return next((name for name in needed if find_spec(name) is None), None)


def require_runtime(name: str, option: str | None = "--runtime", only_run: bool = False) -> str:
    """Refuse what names no runtime, and one whose packages are not installed; `option` is None if the user chose none
    by its name.
    """
    if name != AUTO and name not in PACKAGES:
        known = [*RUNTIMES, AUTO]
        raise LimbeckError(f"{option or 'runtime'} {name}: no such runtime; {did_you_mean(name, known)}")
    missing = missing_package(name, only_run) if name != AUTO else None
    if missing is not None:
        said, other = (f"{option} {name}: ", f", or use {option} torch") if option else ("", "")
        raise LimbeckError(f"{said}{missing} is not installed; run `pip install 'limbeck[{PACKAGES[name][1]}]'`{other}")
    return name


def installed_runtimes() -> list[str]:
    """The runtimes whose packages are installed."""
    return [name for name in RUNTIMES if missing_package(name) is None]


def installed_versions(*names: str) -> list[str]:
    """The versions of packages; nothing for one that is not installed."""
    return [_version(name) for name in names]


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return ""


Size = Callable[["Matcher"], int]  # how many texts or pairs a matcher will run, as far as that is known
_job: ContextVar[tuple[str | None, Size]] = ContextVar("limbeck_job", default=(None, lambda _: 0))
_asked: ContextVar[bool] = ContextVar("limbeck_runtime_asked", default=False)


@contextmanager
def measuring_on(source: object, size: Size = lambda _: 0) -> Iterator[None]:
    """Let models measure on texts of this data set inside the block; what is not the name of one is ignored. `size`
    says how many texts or pairs a matcher will run.
    """
    token = _job.set((str(source) if isinstance(source, str | Path) else None, size))
    try:
        yield
    finally:
        _job.reset(token)


def measured_source() -> str | None:
    """The data set that is measured on, if there is one."""
    return _job.get()[0]


def size_of_job(matcher: Matcher) -> int:
    """How many texts or pairs a matcher will run, as far as that is known."""
    try:
        return _job.get()[1](matcher)
    except (LimbeckError, OSError):  # the command itself will say what is wrong with its data
        return 0


@contextmanager
def using_runtime(name: str | None, single: bool = False) -> Iterator[None]:
    """Run the models that are loaded inside the block in a runtime; `single` if they run one text at a time.

    `auto` is the fastest that keeps the quality. None is what a block around this one asks for, or else the fastest
    float32 runtime, as far as it is known or worth measuring (`auto.use_default`).
    """
    if name is None and _asked.get():
        yield
        return
    if name is not None:
        require_runtime(name)

    def finish(matcher: Matcher) -> Matcher:
        from limbeck.runtimes.auto import use_best, use_default
        from limbeck.runtimes.use import use_runtime

        if name is None:
            return use_default(matcher, single)
        return use_best(matcher, single) if name == AUTO else use_runtime(matcher, name)

    token = _asked.set(True)
    try:
        with after_loading(finish):
            yield
    finally:
        _asked.reset(token)
