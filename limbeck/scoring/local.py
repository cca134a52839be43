"""Run shards on this machine: one process per core with one thread each, which beats one process with many threads.

The driver sends shards to workers through pipes. If a worker dies (killed, out of memory), its shard goes back to the
queue and the worker is replaced; a shard that crashes three workers is given up. If a worker fails, it reports why, and
the job ends with that error. If the driver dies, its workers find their pipes closed and end.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from limbeck.errors import LimbeckError
from limbeck.processor import cores
from limbeck.progress import reporting
from limbeck.scoring.engine import Waiting, in_words, worker_device


class LocalEngine:
    """Runs a job's shards in `workers` processes; a single worker runs in this process."""

    def __init__(self, workers: int | None = None, device: str | None = None) -> None:
        self.device = device or worker_device()
        self.workers = workers or (cores() if self.device == "cpu" else 1)  # each would copy the model to the GPU

    def run(self, folder: Path, shards: Sequence[int], advance: Callable[[int], None]) -> None:
        count = min(self.workers, len(shards))
        if count == 1:
            from limbeck.scoring.scorer import one_thread
            from limbeck.scoring.worker import Worker

            worker = Worker(folder, self.device)
            with reporting(None), one_thread():  # like a worker process, so that sums are equal
                for shard in shards:
                    advance(worker.run(shard))
            return
        _Pool(folder, shards, advance, self.device).run(count)


class _Pool:
    def __init__(self, folder: Path, shards: Sequence[int], advance: Callable[[int], None], device: str) -> None:
        self.folder, self.waiting, self.advance, self.device = folder, Waiting(shards), advance, device
        self.context = multiprocessing.get_context("spawn")
        self.busy: dict[Any, tuple[Any, int | None]] = {}  # pipe -> process, its shard

    def run(self, count: int) -> None:
        try:
            for _ in range(count):
                self._start()
            while any(shard is not None for _, shard in self.busy.values()):
                for pipe in wait(list(self.busy)):
                    self._heard(pipe)
        finally:
            for pipe in self.busy:
                pipe.close()
            for process, _ in self.busy.values():
                process.join(timeout=10)
                if process.is_alive():
                    process.kill()

    def _start(self) -> None:
        ours, theirs = self.context.Pipe()
        process = self.context.Process(target=_work, args=(str(self.folder), theirs, self.device), daemon=True)
        process.start()
        theirs.close()
        self.busy[ours] = (process, None)
        self._next(ours)

    def _next(self, pipe: Any) -> None:
        process, _ = self.busy[pipe]
        shard = self.waiting.next()
        self.busy[pipe] = (process, shard)
        if shard is not None:
            with suppress(BrokenPipeError, ConnectionResetError):  # it died between two shards: `wait` will report it
                pipe.send(shard)

    def _heard(self, pipe: Any) -> None:
        process, shard = self.busy[pipe]
        try:
            kind, value = pipe.recv()
        except (EOFError, ConnectionResetError):
            self._died(pipe, process, shard)
            return
        if kind == "failed":
            raise LimbeckError(value)
        self.advance(value)
        self._next(pipe)

    def _died(self, pipe: Any, process: Any, shard: int | None) -> None:
        process.join()
        del self.busy[pipe]
        pipe.close()
        if shard is None:
            return
        self.waiting.died(shard, f"with exit code {process.exitcode}")
        self._start()


def _work(folder: str, pipe: Connection, device: str) -> None:
    """The loop of a worker process, until its driver has no more shards or is gone."""
    import torch

    from limbeck.scoring.worker import Worker

    torch.set_num_threads(1)
    try:
        worker = Worker(Path(folder), device)
        while True:
            shard = pipe.recv()
            pipe.send(("done", worker.run(shard)))
    except (EOFError, BrokenPipeError, ConnectionResetError, KeyboardInterrupt):
        os._exit(0)  # all files are written, and torch and onnxruntime would take a second to clean up
    except Exception as error:
        with suppress(BrokenPipeError, ConnectionResetError):
            pipe.send(("failed", in_words(error, Path(folder))))
