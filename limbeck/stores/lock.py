"""One writer at a time, across processes and threads; readers need no lock."""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from limbeck.errors import LimbeckError, bad_input


class WriterLock:
    """A lock file that the system releases when the process ends for any reason."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._among_threads = threading.RLock()
        self._depth = 0
        self._holder = 0  # the process that holds the lock: a fork inherits this object, but not the right to write

    @contextmanager
    def held(self) -> Iterator[bool]:
        """Hold the lock inside the block; yields False if an outer block holds it already."""
        with self._among_threads:
            if self._depth and self._holder != os.getpid():
                raise LimbeckError(f"{self._path.parent}: is being written by the parent process; write there instead")
            if self._depth:
                yield False
                return
            handle = self._take()
            self._depth, self._holder = 1, os.getpid()
            try:
                yield True
            finally:
                self._depth = 0
                if self._holder == os.getpid():
                    fcntl.flock(handle, fcntl.LOCK_UN)
                os.close(handle)

    def _take(self) -> int:
        handle = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.ftruncate(handle, 0)
            os.write(handle, str(os.getpid()).encode())
        except BlockingIOError as error:
            writer = os.read(handle, 20).decode(errors="replace") or "another"
            os.close(handle)
            problem = f"is being written by process {writer}"
            raise bad_input(self._path.parent, problem, "wait until it has finished, or stop it") from error
        except BaseException:
            os.close(handle)
            raise
        return handle
