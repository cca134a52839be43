"""Fill a store in blocks, in a process that the test kills. Run by `test_crashes`.

crash_worker.py KIND FOLDER resume          fill FOLDER/store, going on where it is; prints a line when it starts
crash_worker.py KIND FOLDER points STEP     fill FOLDER/<n> in a child that is killed before its n-th step on disk,
                                            for every STEP-th n, then once more to the end; prints the n
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute  # noqa: F401  a fork inherits it instead of importing it again

from limbeck.stores import EncodingStore, ScoreStore, encode_with_store, score_with_store, shards
from limbeck.stores.digests import text_digests

ITEMS = 24
BLOCK = 4
IDENTITY = {"weights": "abc"}


def texts() -> list[str]:
    return [f"text {number}" for number in range(ITEMS)]


def candidates() -> list[tuple[str, list[str]]]:
    return [(f"q{query}", [f"d{document}" for document in range(query, query + 8)]) for query in range(ITEMS // 8)]


def vectors_of(batch: list[str]) -> np.ndarray:
    """Vectors that follow from the text alone: [texts, 4]."""
    return text_digests(batch)[:, :4].astype(np.float32) / 7


def scores_of(pairs: list[tuple[str, str]]) -> np.ndarray:
    return text_digests([f"{query} {document}" for query, document in pairs])[:, 0].astype(np.float32) / 3


def fill(kind: str, folder: Path, pause: float = 0.0) -> None:
    """Fill the store, and note every item of work in a log."""
    log = os.open(folder / "work.log", os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def noted(compute: Callable[[Any], np.ndarray]) -> Callable[[Any], np.ndarray]:
        def work(batch: list[Any]) -> np.ndarray:
            os.write(log, "".join(f"{item}\n" for item in batch).encode())
            time.sleep(pause)
            return compute(batch)

        return work

    if kind == "encodings":
        store = EncodingStore.open(folder / "store", IDENTITY, dim=4)
        encode_with_store(store, texts(), noted(vectors_of), BLOCK)
    else:
        score_with_store(ScoreStore.open(folder / "store", IDENTITY), candidates(), noted(scores_of), BLOCK)


def count_steps(kill_at: int | None) -> list[int]:
    """Count what is done to the disk; kill this process before step number `kill_at`."""
    count = [0]

    def counted(function: Callable[..., Any] | None) -> Callable[..., Any]:
        def step(*args: Any, **kwargs: Any) -> Any:
            count[0] += 1
            if count[0] == kill_at:
                os.kill(os.getpid(), signal.SIGKILL)
            return function(*args, **kwargs) if function else None

        return step

    os.fsync = counted(None)  # a kill, unlike a power cut, takes nothing from the page cache
    os.replace = counted(os.replace)
    shutil.rmtree = counted(shutil.rmtree)  # type: ignore[assignment]
    os.mkdir = counted(os.mkdir)
    return count


def in_child(kind: str, folder: Path, kill_at: int | None) -> tuple[int, int]:
    """Fill in a forked child; returns its steps and its exit status."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        count = count_steps(kill_at)
        fill(kind, folder)
        os.write(writing, str(count[0]).encode())
        os._exit(0)
    os.close(writing)
    steps = os.read(reading, 20)
    os.close(reading)
    return int(steps or 0), os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def points(kind: str, root: Path, step: int) -> None:
    (root / "whole").mkdir()
    total, status = in_child(kind, root / "whole", None)
    assert status == 0
    for point in range(1, total + 1, step):
        folder = root / str(point)
        folder.mkdir()
        assert in_child(kind, folder, point)[1] == -signal.SIGKILL, point
        assert in_child(kind, folder, None)[1] == 0, point
        sys.stdout.write(f"{point}\n")


if __name__ == "__main__":
    shards.MERGE_AT = 4  # of 6 appends, so that a merge falls among them
    kind_of_store, place, mode = sys.argv[1], Path(sys.argv[2]), sys.argv[3]
    if mode == "points":
        points(kind_of_store, place, int(sys.argv[4]))
    else:
        sys.stdout.write("started\n")
        sys.stdout.flush()
        fill(kind_of_store, place, pause=0.005)
