"""Arrays in files: written with their checksum, memory-mapped for reading, checked when that is cheap.

A truncated file is noticed by its size when it is mapped. The content of a file smaller than `CHECK_BELOW` is checked
on first access, which takes a fraction of a second. A larger file is only checked by `verify`, or before it is merged
into another, so that opening a store of many gigabytes does not require reading it.
A writer that compacts may delete a mapped file; the mapping stays valid.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from limbeck.errors import LimbeckError, bad_input

CHECK_BELOW = 256 * 2**20


@dataclass(frozen=True)
class FileRecord:
    """The manifest's record of a file."""

    bytes: int
    checksum: str


def write_bytes(path: Path, parts: Iterable[bytes | memoryview]) -> FileRecord:
    """Write the parts one after the other, inside a directory that is still being written."""
    size, whole = 0, hashlib.blake2b(digest_size=16)
    with open(path, "wb") as handle:
        for part in parts:
            handle.write(part)
            whole.update(part)
            size += len(part)
    return FileRecord(size, whole.hexdigest())


def write_array(path: Path, parts: Iterable[np.ndarray], rows: int, like: np.ndarray) -> FileRecord:
    """Write a .npy file of `rows` rows, given as consecutive `parts`, with the dtype and row shape of `like`."""
    header = io.BytesIO()
    shape = (rows, *like.shape[1:])
    layout = {"descr": np.lib.format.dtype_to_descr(like.dtype), "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(header, layout)
    payload = (np.ascontiguousarray(part).data.cast("B") for part in parts if part.size)
    return write_bytes(path, (part for source in ([header.getvalue()], payload) for part in source))


class MappedFile:
    """A file of a shard, mapped read-only."""

    def __init__(self, path: Path, record: FileRecord, remedy: str) -> None:
        self.path = path
        self._record = record
        self._remedy = remedy
        self._verified = False
        self._array: np.ndarray | None = None
        size = path.stat().st_size
        if size != record.bytes:
            raise self._damaged(f"has {size} bytes but the manifest says {record.bytes}")
        self._content = np.asarray(np.memmap(path, dtype=np.uint8, mode="r"))

    def _damaged(self, problem: str) -> LimbeckError:
        return bad_input(self.path, f"is damaged: {problem}", self._remedy)

    def verify(self) -> None:
        """Compare the content with the checksum."""
        if hashlib.blake2b(self._content.data, digest_size=16).hexdigest() != self._record.checksum:
            raise self._damaged("its checksum differs from the manifest")
        self._verified = True

    def verify_once(self) -> None:
        """Compare the content with the checksum, unless that was done before."""
        if not self._verified:
            self.verify()

    @property
    def content(self) -> np.ndarray:
        """The bytes, [size] uint8."""
        if self._record.bytes < CHECK_BELOW:
            self.verify_once()
        return self._content

    @property
    def array(self) -> np.ndarray:
        """The array of a .npy file, memory-mapped."""
        if self._array is None:
            content = self.content
            header = io.BytesIO(content[: 2**12].tobytes())
            try:
                np.lib.format.read_magic(header)
                shape, _, dtype = np.lib.format.read_array_header_1_0(header)
                self._array = content[header.tell() :].view(dtype).reshape(shape)
            except (ValueError, TypeError) as error:
                raise self._damaged(f"it is not a .npy array ({error})") from error
        return self._array
