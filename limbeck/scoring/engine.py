"""Shared by all engines: the queue of shards, and what happens when a worker dies."""

from __future__ import annotations

import traceback
from collections import Counter, deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from limbeck.errors import LimbeckError, did_you_mean
from limbeck.matchers.device_choice import asked_device
from limbeck.progress import say

ATTEMPTS = 3
MEMORY = "free some memory, or use fewer --workers, and run the same command again"


class Engine(Protocol):
    """Runs a job's shards, and calls `advance` with the number of finished pairs.

    Workers score on `device`. It is the CPU unless a device is requested: several processes share a GPU badly, because
    each holds its own copy of the model and waits for the others.
    """

    device: str

    def run(self, folder: Path, shards: Sequence[int], advance: Callable[[int], None]) -> None: ...


def engine_named(name: str, workers: int | None = None, address: str | None = None) -> Engine:
    """The engine `local` or `ray`; `address` is the address of a Ray cluster."""
    if name == "ray":
        from limbeck.scoring.ray_engine import RayEngine

        return RayEngine(workers, address)
    if name != "local":
        raise LimbeckError(f"--engine {name}: no such engine; {did_you_mean(name, ['local', 'ray'])}")
    if address is not None:
        raise LimbeckError("--address names a Ray cluster; add --engine ray")
    from limbeck.scoring.local import LocalEngine

    return LocalEngine(workers)


def worker_device() -> str:
    """The device of the workers: the requested one, otherwise the CPU, even if there is a GPU."""
    return asked_device() or "cpu"


def in_words(error: Exception, folder: Path) -> str:
    """The message for a worker's error, which would occur again in every other worker."""
    if isinstance(error, LimbeckError):
        return str(error)
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename or folder}: {error.strerror}; fix that and run the same command again"
    reason = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
    if isinstance(error, MemoryError) or "allocate memory" in str(error):  # torch's wording
        return f"{folder}: a worker ran out of memory ({reason}); {MEMORY}"
    place = traceback.extract_tb(error.__traceback__)[-1:]
    where = "".join(f" in {Path(frame.filename).name}:{frame.lineno}" for frame in place)
    return f"{folder}: a worker failed{where} ({reason}); please report this line"


class Waiting:
    """Shards without a worker; a shard that crashes three workers is given up."""

    def __init__(self, shards: Sequence[int]) -> None:
        self.shards = deque(shards)
        self.lost: Counter[int] = Counter()

    def next(self) -> int | None:
        return self.shards.popleft() if self.shards else None

    def died(self, shard: int, how: str) -> None:
        """Put a shard back at the front of the queue, because its worker died."""
        self.lost[shard] += 1
        if self.lost[shard] >= ATTEMPTS:
            raise LimbeckError(f"shard {shard} crashed {ATTEMPTS} workers, the last {how}; {MEMORY}")
        say(f"a worker died {how}; shard {shard} is scored again")
        self.shards.appendleft(shard)
