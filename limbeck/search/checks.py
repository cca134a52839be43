"""Check whether the files on disk have changed; cheap enough for every opening.

Sizes are always compared. Files below 32 MB are read and compared with their checksums. A larger file is read too,
unless `verified.json` says that it was verified and its size, times and inode are still the same; so a copied, restored
or edited file is read again. The remaining risk is a disk that changes bits of a large file by itself; `verify` reads
everything.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from limbeck.errors import LimbeckError, bad_input
from limbeck.files import checksum, read_json, write_json
from limbeck.progress import progress
from limbeck.stores.mapped import FileRecord

ALWAYS_BELOW = 32 * 2**20
STAMPS = "verified.json"

Stamp = list[int]


def record_of(path: Path) -> FileRecord:
    """The manifest's record of a file that was just written."""
    return FileRecord(path.stat().st_size, checksum(path))


def check(folder: Path, files: Mapping[str, FileRecord], remedy: str, everything: bool = False) -> None:
    """Compare files with their records; an error names the first damaged file."""
    stamps = {} if everything else _stamps(folder)
    fresh: dict[str, Stamp] = {}
    to_read = []
    for name, record in files.items():
        status = _status(folder / name, record, remedy)
        fresh[name] = [status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino]
        if record.bytes < ALWAYS_BELOW or stamps.get(name) != fresh[name]:
            to_read.append(name)
    with progress("Checking the index", sum(files[name].bytes for name in to_read)) as advance:
        for name in to_read:
            if checksum(folder / name) != files[name].checksum:
                raise bad_input(folder / name, "is damaged: its checksum differs from the manifest", remedy)
            advance(files[name].bytes)
    large = {name: stamp for name, stamp in fresh.items() if files[name].bytes >= ALWAYS_BELOW}
    if large != stamps:
        with suppress(OSError, LimbeckError):  # if the folder cannot be written, the files are read again next time
            write_json(folder / STAMPS, large)


def _status(path: Path, record: FileRecord, remedy: str) -> os.stat_result:
    try:
        status = path.stat()
    except OSError as error:
        raise bad_input(path, f"is missing ({error.strerror})", remedy) from error
    if status.st_size != record.bytes:
        raise bad_input(path, f"is damaged: it has {status.st_size} bytes, not {record.bytes}", remedy)
    return status


def _stamps(folder: Path) -> dict[str, Stamp]:
    try:
        found = read_json(folder / STAMPS)
    except LimbeckError:
        return {}
    return found if isinstance(found, dict) else {}
