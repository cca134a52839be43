"""Parsed text tables on disk, memory-mapped: a corpus is parsed once, and then opens in milliseconds.

The directory is `$LIMBECK_CACHE`, or `~/.cache/limbeck`. A table is three files: the Arrow table, its id index, and
the checksums of both. Their names contain a digest of the source (a path, a hub name) and one of its state (size,
times, inode, reader version), so a changed source never gets an old table, and old tables can be deleted. The Arrow
file is written last and marks the table as complete. Two processes that parse at the same time write equal files, and
the later one wins. A damaged table is made again: a small one at once, a large one by the next call, because its
parts are only checked when they are first used.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, TypeVar

import numpy as np
import pyarrow as pa

from limbeck.data.checked import CheckedArray, CheckedBatches, Damaged, Sums, read_sums, write_sums
from limbeck.data.ids import build_index, hash_ids
from limbeck.data.texts import SCHEMA, Texts
from limbeck.errors import LimbeckError
from limbeck.files import digest, write_atomically

VERSION = "2"  # raise it when the layout on disk or the result of a reader changes
_ABANDONED_SECONDS = 24 * 3600
_SMALL = 64 << 20  # bytes: smaller tables are checked completely when opened, which takes some 20 ms

T = TypeVar("T")


def cache_directory(part: str = "tables") -> Path | None:
    """A part of the cache folder, or None if it cannot be written."""
    named = os.environ.get("LIMBECK_CACHE")
    try:
        directory = (Path(named).expanduser() if named else Path.home() / ".cache" / "limbeck") / part
        directory.mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError):
        return None
    return directory if os.access(directory, os.W_OK | os.X_OK) else None


def file_state(path: Path) -> str:
    """A string that changes when the file changes, or when another file of the same size and time replaces it."""
    status = path.stat()
    return f"{status.st_size} {status.st_mtime_ns} {status.st_ctime_ns} {status.st_ino}"


def cached_texts(
    source: str,
    state: str,
    batches: Callable[[], Iterable[pa.RecordBatch]],
    duplicate: Callable[[str], LimbeckError],
) -> Texts:
    """The table of `source` in `state`: mapped from the cache, or made from `batches()` and stored there.

    `duplicate` makes the error for an id that occurs twice.
    """

    def write(arrow: Path) -> None:
        write_texts(arrow, batches(), duplicate, sums=True)

    return _cached(source, state, ".arrow", _open_checked, write)


def cached_array(source: str, state: str, pieces: Callable[[], Iterable[np.ndarray]]) -> np.ndarray:
    """The same for an array [n, ...] that is produced in pieces along its first axis."""

    def write(file: Path) -> None:
        write_pieces(file, pieces(), sums=True)

    return _cached(source, state, ".npy", lambda file: CheckedArray(file, _sums(file, file)).checked(), write)


def _cached(source: str, state: str, suffix: str, read: Callable[[Path], T], write: Callable[[Path], None]) -> T:
    """Read a cached file, or write it first.

    If no cache can be written, the data go into a temporary file that is unlinked as soon as it is mapped.
    """
    directory = cache_directory()
    if directory is None:
        with _temporary_directory() as scratch:
            write(scratch / f"table{suffix}")
            return read(scratch / f"table{suffix}")
    name = digest(source)
    file = directory / f"{name}-{digest(VERSION, state)}{suffix}"
    with suppress(OSError, EOFError, ValueError, pa.ArrowInvalid):  # missing or damaged: make it again
        return read(file)
    write(file)
    _drop_older(directory, name, file)
    return read(file)


def open_texts(arrow: Path) -> Texts:
    """Map a table that `write_texts` wrote; check it if it has checksums."""
    if _sums_of(arrow).exists():
        return _open_checked(arrow)
    reader = pa.ipc.open_file(pa.memory_map(str(arrow)))
    if reader.schema != SCHEMA:
        raise ValueError(f"{arrow} is not a table of texts")
    batches = [reader.get_batch(number) for number in range(reader.num_record_batches)]
    index = _mapped(_index_of(arrow))
    if index.shape != (2, sum(map(len, batches))):
        raise ValueError(f"{arrow} and its index differ")
    return Texts(batches, index, arrow)


def _open_checked(arrow: Path) -> Texts:
    own, of_index = _sums(arrow, arrow), _sums(arrow, _index_of(arrow))
    batches, index = CheckedBatches(arrow, own), CheckedArray(_index_of(arrow), of_index)
    if own.ends[-1] + of_index.ends[-1] > _SMALL:
        return Texts(batches, index.in_use, arrow)
    batches.require_all()
    return Texts(batches, index.checked(), arrow)


def _sums(table: Path, file: Path) -> Sums:
    """The checksums of one file of a table."""
    known = read_sums(_sums_of(table))
    if file.name not in known:
        raise Damaged(f"{file} has no checksum")
    return known[file.name]


def write_texts(
    arrow: Path, batches: Iterable[pa.RecordBatch], duplicate: Callable[[str], LimbeckError], sums: bool = False
) -> None:
    """Write a table that `open_texts` can map, and its id index. `duplicate` makes the error for a repeated id.

    With `sums`, write their checksums too; a folder with its own manifest does not need them.
    """
    hashes, ends, rows = [], [], []
    with write_atomically(arrow) as handle:
        with pa.ipc.new_file(handle, SCHEMA) as writer:
            for batch in batches:
                if len(batch):
                    ends.append(handle.tell())
                    rows.append(len(batch))
                    writer.write_batch(batch)
                    hashes.append(hash_ids(batch.column(0)))
            ends.append(handle.tell())
        handle.flush()
        index = build_index(hashes)
        reader = pa.ipc.open_file(pa.memory_map(handle.name))
        written = Texts([reader.get_batch(number) for number in range(reader.num_record_batches)], index)
        twice = written.first_duplicate()
        if twice is not None:
            raise duplicate(written.id_at(twice))
        index_file = _index_of(arrow)
        with write_atomically(index_file) as index_handle:
            np.save(index_handle, index, allow_pickle=False)
        if sums:
            of_both = {arrow.name: Sums.of(Path(handle.name), ends, rows), index_file.name: Sums.of(index_file)}
            write_sums(_sums_of(arrow), of_both)
    pa.default_memory_pool().release_unused()


def _mapped(file: Path) -> np.ndarray:
    """Map a file as a plain ndarray: access through np.memmap is several times slower."""
    return np.load(file, mmap_mode="r", allow_pickle=False).view(np.ndarray)


def write_pieces(file: Path, pieces: Iterable[np.ndarray], sums: bool = False) -> None:
    """Write an .npy file of unknown length, and with `sums` its checksum."""
    with write_atomically(file) as handle:
        _write_pieces(handle, pieces)
        handle.flush()
        if sums:
            write_sums(_sums_of(file), {file.name: Sums.of(Path(handle.name))})


def _write_pieces(handle: IO[bytes], pieces: Iterable[np.ndarray]) -> None:
    """Write the pieces, then fill in the length: numpy pads its header, so there is room for it."""
    length = 0
    header: dict[str, Any] = {}
    for piece in pieces:
        if not header:
            header = {"descr": piece.dtype.str, "fortran_order": False, "shape": (0, *piece.shape[1:])}
            np.lib.format.write_array_header_1_0(handle, header)
        handle.write(np.ascontiguousarray(piece).tobytes())
        length += len(piece)
    if not header:
        np.save(handle, np.empty((0,)), allow_pickle=False)
        return
    handle.seek(0)
    np.lib.format.write_array_header_1_0(handle, header | {"shape": (length, *header["shape"][1:])})


def _index_of(arrow: Path) -> Path:
    return arrow.with_suffix(".ids.npy")


def _sums_of(file: Path) -> Path:
    return file.with_suffix(".sums.json")


def _drop_older(directory: Path, name: str, current: Path) -> None:
    """Remove tables of the same source in another state, and files that a killed process left more than a day ago.

    A process that has an older table mapped can still use it.
    """
    for file in directory.glob(f"{name}-*"):
        if not file.name.startswith(current.stem):
            file.unlink(missing_ok=True)
    for remains in directory.glob(f".{name}-*.partial"):
        with suppress(FileNotFoundError):
            if remains.stat().st_mtime < time.time() - _ABANDONED_SECONDS:
                remains.unlink()


@contextmanager
def _temporary_directory() -> Iterator[Path]:
    directory = Path(tempfile.mkdtemp(prefix="limbeck-"))
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)
