"""Text files, plain or gzipped, read in blocks of whole lines; errors name file and line."""

from __future__ import annotations

import errno
import gzip
import json
import os
import re
import stat
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import IO, Any

from limbeck.data.fields import type_name
from limbeck.errors import bad_input
from limbeck.files import write_atomically
from limbeck.progress import progress

BLOCK_BYTES = 16 << 20
_PROGRESS_FROM_BYTES = 32 << 20  # smaller files are read before a progress bar would appear

READ_REMEDIES = {
    errno.ELOOP: "remove the circular symbolic links",
    errno.EMFILE: "raise the limit on open files (ulimit -n)",
    errno.ENFILE: "close some programs, or raise the system's limit on open files",
    errno.ENXIO: "give a regular file",
    errno.ENAMETOOLONG: "check the path",
}

_BLANK_FIRST, _BLANK_LATER = re.compile(rb"[ \t\r]*\n"), re.compile(rb"\n[ \t\r]*\n")


def open_binary(path: Path) -> IO[bytes]:
    """Open a file for reading, or raise a one-line error.

    Pipes and devices are refused before they are opened: they may block, or never end.
    """
    try:
        kind = os.stat(path).st_mode
        if not (stat.S_ISREG(kind) or stat.S_ISDIR(kind)):
            raise bad_input(path, "is a pipe or a device", "give a regular file")
        return open(path, "rb")
    except FileNotFoundError as error:
        raise bad_input(path, "no such file", "check the path") from error
    except IsADirectoryError as error:
        raise bad_input(path, "is a directory, not a file", "name a file inside it") from error
    except OSError as error:
        remedy = READ_REMEDIES.get(error.errno or 0, "make it readable (chmod u+r)")
        raise bad_input(path, f"cannot be read ({error.strerror})", remedy) from error
    except ValueError as error:  # a NUL in its name
        raise bad_input(str(path).replace("\0", "\\0"), "is not a file name", "check the path") from error


def blocks(path: str | Path, size: int = BLOCK_BYTES) -> Iterator[tuple[int, bytes]]:
    """Yield (number of the first line, bytes) for blocks of about `size` bytes that end at the end of a line.

    A `.gz` suffix means gzip; a byte order mark is dropped.
    """
    path = Path(path)
    with open_binary(path) as raw:
        whole = path.stat().st_size
        source: IO[bytes] = gzip.GzipFile(fileobj=raw) if path.suffix == ".gz" else raw  # type: ignore[assignment]
        shown = progress(f"Reading {path.name}", whole) if whole >= _PROGRESS_FROM_BYTES else nullcontext(_no_advance)
        with shown as advance:
            line, rest, done = 1, [], 0
            while chunk := _read(source, size, path):
                advance(raw.tell() - done)
                done = raw.tell()
                end = chunk.rfind(b"\n") + 1
                if end == 0:
                    rest.append(chunk)
                    continue
                block = b"".join([*rest, chunk[:end]])
                rest = [chunk[end:]]
                yield line, _without_mark(block, line)
                line += block.count(b"\n")
            last = b"".join(rest)
            if last:
                yield line, _without_mark(last, line)


def _no_advance(_: int) -> None:
    """For small files, which show no progress."""


def _read(source: IO[bytes], size: int, path: Path) -> bytes:
    try:
        return source.read(size)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise bad_input(path, f"is not a complete gzip file ({error})", "download or compress it again") from error
    except OSError as error:
        raise bad_input(path, f"cannot be read ({error.strerror})", "check the disk and the file") from error


def _without_mark(block: bytes, line: int) -> bytes:
    return block.removeprefix(b"\xef\xbb\xbf") if line == 1 else block


def block_lines(path: str | Path, first: int, block: bytes, blank: bool = False) -> Iterator[tuple[int, str]]:
    """Yield (line number, text without line end) for the lines of a block; blank lines only if asked for."""
    try:
        texts = block.decode("utf-8").split("\n")
    except UnicodeDecodeError:
        texts = [_decode(path, first + k, line) for k, line in enumerate(block.split(b"\n"))]
    if block.endswith(b"\n"):
        texts.pop()
    for number, text in enumerate(texts, first):
        if blank or (text and not text.isspace()):
            yield number, text.removesuffix("\r")


def filled_lines(block: bytes) -> int:
    """The number of lines in a block, or -1 if some are blank, because parsers skip blank lines."""
    if _BLANK_FIRST.match(block) or _BLANK_LATER.search(block):
        return -1
    return block.count(b"\n") + (not block.endswith(b"\n"))


def _decode(path: str | Path, number: int, line: bytes) -> str:
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError as error:
        problem = f"is not valid UTF-8 (byte {error.start + 1} of the line)"
        raise bad_input(path, problem, "save the file as UTF-8 (iconv -t UTF-8)", number) from error


def lines(path: str | Path, blank: bool = False) -> Iterator[tuple[int, str]]:
    """Yield (line number, text) for every line of a file; blank lines only if asked for."""
    for first, block in blocks(path):
        yield from block_lines(path, first, block, blank)


def parse_json(path: str | Path, number: int, line: str) -> dict[str, Any]:
    """One line of a jsonl file as an object."""
    try:
        value = json.loads(line)
    except json.JSONDecodeError as error:
        problem = f"is not valid JSON ({error.msg} at column {error.colno})"
        raise bad_input(path, problem, "write one JSON object per line", number) from error
    except ValueError as error:  # a number of thousands of digits
        raise bad_input(path, "has a number that is too long", "write shorter numbers", number) from error
    except RecursionError as error:
        raise bad_input(path, "is nested too deeply", "write one flat JSON object per line", number) from error
    if not isinstance(value, dict):
        raise bad_input(path, f"contains {type_name(value)}, not an object", "write one JSON object per line", number)
    return value


def json_lines(path: str | Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield (line number, object) for every line of a jsonl file that is not blank."""
    for number, line in lines(path):
        yield number, parse_json(path, number, line)


@contextmanager
def writing(path: str | Path) -> Iterator[IO[Any]]:
    """A binary file that appears only if the block succeeds; gzipped if its suffix is `.gz`."""
    with write_atomically(path) as raw:
        if Path(path).suffix == ".gz":
            with gzip.GzipFile(fileobj=raw, mode="wb", filename="", mtime=0) as packed:
                yield packed  # type: ignore[misc]
        else:
            yield raw


def plain_or_gz(path: Path) -> Path | None:
    """The file, or its gzipped form, or None."""
    for candidate in (path, path.with_name(path.name + ".gz")):
        if candidate.is_file():
            return candidate
    return None


def require(path: Path, remedy: str) -> Path:
    """The file or its gzipped form; an error with `remedy` if neither exists."""
    found = plain_or_gz(path)
    if found is None:
        raise bad_input(path, "no such file (nor with .gz)", remedy)
    return found


def bare_suffix(path: Path) -> str:
    """The suffix before `.gz`: `.jsonl` for both `a.jsonl` and `a.jsonl.gz`."""
    return Path(path.name.removesuffix(".gz")).suffix.lower()


def bare_stem(path: Path) -> str:
    """The name without `.gz` and without the suffix before it."""
    return Path(path.name.removesuffix(".gz")).stem
