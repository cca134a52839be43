"""The folder for sockets and logs of a local Ray cluster: private to the user, and removed at the end.

Ray makes its own folder accessible to every user of the machine and does not remove it. So it gets one inside a
private folder, which is removed with the cluster; the next driver removes what a killed one left.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from limbeck.errors import LimbeckError
from limbeck.files import alone_in

_PREFIX = "limbeck-ray-"
_LONGEST = 24  # maximum characters of a path: Ray needs the rest of the 107 for the name of a socket
_SECONDS = 10  # seconds; a newer folder may belong to a driver that has not locked it yet


@contextmanager
def private_folder() -> Iterator[Path]:
    """A folder for Ray that exists as long as the block."""
    place = tempfile.gettempdir()
    if len(place) > _LONGEST and os.access("/tmp", os.W_OK | os.X_OK):
        place = "/tmp"
    _remove_abandoned(Path(place))
    folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=place))
    try:
        with alone_in(folder):
            yield folder / "ray"
    finally:
        _remove(folder)


def _remove_abandoned(place: Path) -> None:
    for folder in place.glob(f"{_PREFIX}*"):
        with suppress(LimbeckError, OSError):  # in use, or of another user
            status = folder.lstat()
            if status.st_uid == os.getuid() and status.st_ctime < time.time() - _SECONDS and not folder.is_symlink():
                with alone_in(folder):
                    shutil.rmtree(folder, ignore_errors=True)


def _remove(folder: Path) -> None:
    """Remove it; Ray's processes may still write into it while they end."""
    for _ in range(20):
        shutil.rmtree(folder, ignore_errors=True)
        if not folder.exists():
            return
        time.sleep(0.1)
