"""Where a Ray cluster that is started here keeps its sockets and logs: a folder of this user's alone, gone at the end.

Ray opens its own folder to every user of the machine and leaves it behind. So it gets one inside a private folder,
which is removed with the cluster; what a killed driver left is removed by the next one.
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
_LONGEST = 24  # characters of a path that leave Ray enough of the 107 that the name of a socket may have
_SECONDS = 10  # a younger folder may be one that another driver has made and not yet locked


@contextmanager
def private_folder() -> Iterator[Path]:
    """A place for Ray that exists as long as the block."""
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
        with suppress(LimbeckError, OSError):  # in use, or somebody else's
            status = folder.lstat()
            if status.st_uid == os.getuid() and status.st_ctime < time.time() - _SECONDS and not folder.is_symlink():
                with alone_in(folder):
                    shutil.rmtree(folder, ignore_errors=True)


def _remove(folder: Path) -> None:
    """Remove it; processes of Ray that are about to end may write into it once more."""
    for _ in range(20):
        shutil.rmtree(folder, ignore_errors=True)
        if not folder.exists():
            return
        time.sleep(0.1)
