"""Files that are compared with their checksums before use.

A checksum is a CRC-32, which takes a second for several gigabytes. It finds every flipped bit and every truncated file.
It does not protect against an attacker, who can write new checksums too.

An Arrow file has a checksum for each of its batches. A batch is checked on first access, so that a corpus of
many gigabytes still opens in milliseconds, and data that are never read cost nothing.
"""

from __future__ import annotations

import io
import zlib
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeVar, overload

import numpy as np
import pyarrow as pa

from limbeck.errors import LimbeckError, bad_input
from limbeck.files import digest, read_json, write_json

Columns = tuple[pa.LargeStringArray, pa.LargeStringArray, pa.LargeStringArray]  # id, title, text

T = TypeVar("T")


class Damaged(ValueError):
    """A file differs from what was written."""


@dataclass(frozen=True)
class Sums:
    """Checksums of consecutive pieces of a file; `rows` counts the rows of each piece except the first and the last."""

    ends: list[int]  # where each piece ends, in bytes
    sums: list[int]
    rows: list[int]

    @classmethod
    def of(cls, file: Path, ends: Sequence[int] = (), rows: Sequence[int] = ()) -> Sums:
        """The checksums of a file that was just written. The bytes after the last of `ends` are a piece too."""
        content = _content(file)
        ends = [*ends, len(content)]
        return cls(ends, [_sum(content, start, end) for start, end in zip([0, *ends], ends, strict=False)], list(rows))

    def require(self, content: memoryview, piece: int) -> None:
        start = self.ends[piece - 1] if piece else 0
        if _sum(content, start, self.ends[piece]) != self.sums[piece]:
            raise Damaged(f"bytes {start} to {self.ends[piece]} have changed since they were written")

    def require_all(self, content: memoryview) -> None:
        self.require_size(content)
        for piece in range(len(self.ends)):
            self.require(content, piece)

    def require_size(self, content: memoryview) -> None:
        if len(content) != self.ends[-1]:
            raise Damaged(f"it has {len(content)} bytes, not {self.ends[-1]}")


def _sum(content: memoryview, start: int, end: int) -> int:
    return zlib.crc32(content[start:end])


def _content(file: Path) -> memoryview:
    """The bytes of a file, mapped."""
    if file.stat().st_size == 0:
        return memoryview(b"")
    return memoryview(pa.memory_map(str(file)).read_buffer())


def write_sums(path: Path, files: dict[str, Sums]) -> None:
    """Write the checksums of some files, and a checksum of these."""
    record = {name: asdict(sums) for name, sums in files.items()}
    write_json(path, {"files": record, "checksum": digest(repr(record))})


def read_sums(path: Path) -> dict[str, Sums]:
    """Read what `write_sums` wrote; raise `Damaged` if it is missing or changed."""
    try:
        record = read_json(path)
        if record["checksum"] != digest(repr(record["files"])):
            raise Damaged(f"{path} is damaged")
        return {name: Sums(**sums) for name, sums in record["files"].items()}
    except (LimbeckError, KeyError, TypeError) as error:
        raise Damaged(f"{path} is damaged") from error


SUMS = "sums.json"  # checksums of a folder's files


def sum_folder(folder: Path) -> None:
    """Write the checksums of all files of a folder that is still being written."""
    files = sorted(file for file in folder.rglob("*") if file.is_file())
    write_sums(folder / SUMS, {str(file.relative_to(folder)): Sums.of(file) for file in files})


def require_folder(folder: Path) -> None:
    """Compare a folder's files with their checksums; `Damaged` names the first that differs."""
    for name, sums in read_sums(folder / SUMS).items():
        try:
            sums.require_all(_content(folder / name))
        except (OSError, Damaged) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            raise Damaged(f"{name}: {reason}") from error


class CheckedArray:
    """A mapped .npy file that is read completely and checked before use."""

    def __init__(self, file: Path, sums: Sums) -> None:
        self._file, self._sums, self._content = file, sums, _content(file)
        sums.require_size(self._content)

    def checked(self) -> np.ndarray:
        """The array; raises `Damaged` if it has changed."""
        self._sums.require_all(self._content)
        header = io.BytesIO(self._content[: 1 << 12])
        np.lib.format.read_magic(header)
        shape, _, dtype = np.lib.format.read_array_header_1_0(header)
        return np.frombuffer(self._content, dtype, offset=header.tell()).reshape(shape)

    def in_use(self) -> np.ndarray:
        """The array; if it has changed, raise an error for the user."""
        return with_remedy(self._file, self.checked)


class CheckedBatches(Sequence[Columns]):
    """The batches of a mapped Arrow file. `lengths` has the number of rows of each batch, which is never 0."""

    def __init__(self, file: Path, sums: Sums) -> None:
        """Raise `Damaged` if the file's size, beginning or end is wrong; batches are checked on first access."""
        self._file, self._sums = file, sums
        self._content = _content(file)
        sums.require_size(self._content)
        sums.require(self._content, 0)
        sums.require(self._content, len(sums.ends) - 1)
        self._reader = pa.ipc.open_file(pa.BufferReader(pa.py_buffer(self._content)))
        self._known: dict[int, Columns] = {}
        self.lengths = sums.rows

    def require_all(self) -> None:
        """Check all batches now."""
        self._sums.require_all(self._content)

    def __len__(self) -> int:
        return len(self.lengths)

    @overload
    def __getitem__(self, number: int) -> Columns: ...
    @overload
    def __getitem__(self, number: slice) -> list[Columns]: ...
    def __getitem__(self, number: int | slice) -> Columns | list[Columns]:
        if isinstance(number, slice):
            return [self[each] for each in range(*number.indices(len(self)))]
        if number not in self._known:
            if not 0 <= number < len(self):
                raise IndexError(number)
            with_remedy(self._file, lambda: self._sums.require(self._content, number + 1))
            batch = self._reader.get_batch(number)
            self._known[number] = batch.column(0), batch.column(1), batch.column(2)
        return self._known[number]


def with_remedy(file: Path, check: Callable[[], T]) -> T:
    """Run a check; if it fails, delete the file and raise an error, so that the next call makes the file again."""
    try:
        return check()
    except Damaged as error:
        file.unlink(missing_ok=True)
        raise bad_input(file, f"was damaged ({error}) and is removed", "run the same command again") from error
