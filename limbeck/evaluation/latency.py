"""The cost of a matcher: time per call, size on disk, parameters."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from limbeck.errors import LimbeckError, bad_input
from limbeck.progress import track

if TYPE_CHECKING:
    from torch import nn

T = TypeVar("T")


@dataclass(frozen=True)
class Latency:
    """Wall-clock time of single calls, one after the other."""

    p50_ms: float
    p99_ms: float
    mean_ms: float
    per_second: float  # calls
    calls: int

    def __str__(self) -> str:
        return f"{self.p50_ms:.2f} ms (99%: {self.p99_ms:.2f} ms), {self.per_second:.1f} per second, {self.calls} calls"


def measure_latency(fn: Callable[[T], object], items: Sequence[T], warmup: int = 3, repeats: int = 1) -> Latency:
    """Time `fn(item)` for every item, `repeats` times, after `warmup` calls that are not counted.

    The first calls of a model allocate memory and fill caches; the warm-up uses the first items of the list.
    """
    if not items or repeats < 1:
        raise LimbeckError("nothing to time; give at least one item and one repeat")
    for call in range(warmup):
        fn(items[call % len(items)])
    spent = []
    for item in track([item for _ in range(repeats) for item in items], "Timing"):
        start = time.perf_counter_ns()
        fn(item)
        spent.append(time.perf_counter_ns() - start)
    return _latency(spent)


def measure_interleaved(
    systems: Mapping[str, Callable[[T], object]], items: Sequence[T], block: int = 8
) -> dict[str, Latency]:
    """Time every system on every item, in turns of `block` items: other load on the machine slows all of them alike.

    Each turn begins with a call that is not counted, which brings the system's weights back into the caches. Of the
    turns, the order of the systems is reversed every second time.
    """
    if not items or not systems:
        raise LimbeckError("nothing to time; give at least one system and one item")
    spent: dict[str, list[int]] = {name: [] for name in systems}
    turns = [items[start : start + block] for start in range(0, len(items), block)]
    for number, turn in enumerate(turns):
        for name in reversed([*systems]) if number % 2 else systems:
            systems[name](turn[0])
            for item in turn:
                start = time.perf_counter_ns()
                systems[name](item)
                spent[name].append(time.perf_counter_ns() - start)
    return {name: _latency(found) for name, found in spent.items()}


def _latency(nanoseconds: Sequence[int]) -> Latency:
    ms = np.array(nanoseconds) / 1e6
    p50, p99 = np.percentile(ms, [50, 99])
    return Latency(float(p50), float(p99), float(ms.mean()), float(1e3 / max(ms.mean(), 1e-9)), len(ms))


def folder_bytes(path: str | Path) -> int:
    """The size of a saved model: the bytes of all files in a folder, following links."""
    path = Path(path)
    if not path.is_dir():
        raise bad_input(path, "no such folder", "name the folder of a saved model")
    return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())


def parameter_count(model: nn.Module) -> int:
    """The number of parameters; a tensor that two modules share counts once."""
    return sum(parameter.numel() for parameter in model.parameters())
