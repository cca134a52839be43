"""Identify a list of pairs and its texts.

A job identifies its files by their content: a different list is another job even with the same size and time, and a
copy of the list is the same job. The content is read once per call. Size and times show whether a file has changed
since.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

from limbeck.data.cache import file_state
from limbeck.data.lines import open_binary
from limbeck.errors import LimbeckError, bad_input
from limbeck.files import digest, read_json, write_json
from limbeck.progress import progress
from limbeck.scoring.plan import WORK, Asked

_BLOCK, _SHOWN_FROM = 4 << 20, 256 << 20  # bytes
_SEEN = f"{WORK}/seen.json"


def content_of(*sources: str | Path | None) -> str:
    """A digest of the content of all files."""
    return _over(sources, _content)


def state_of(*sources: str | Path | None) -> str:
    """A value that changes with the files, on the machine that runs the job."""
    return _over(sources, file_state)


def times_of(*sources: str | Path | None) -> str:
    """The same on any machine that sees the files: inodes may differ, so only size and time are used."""
    return _over(sources, _times)


def note_times(folder: Path, times: str) -> None:
    """Record the state of the files before this call read them, for workers."""
    write_json(folder / _SEEN, {"times": times})


def require_same_times(folder: Path, asked: Asked) -> None:
    """Check that the texts that workers open, perhaps on another machine, are those that this call read.

    Call it after opening them, so that a change in between is noticed too.
    """
    seen = read_json(folder / _SEEN, "run the same command again")
    if seen != {"times": times_of(asked.pairs_file, asked.left, asked.right)}:
        raise changed()


def changed() -> LimbeckError:
    problem = "the list of pairs, or its texts, changed while they were scored"
    return LimbeckError(f"{problem}; start again with another --out")


def _times(path: Path) -> str:
    status = path.stat()
    return f"{status.st_size} {status.st_mtime_ns}"


def _over(sources: tuple[str | Path | None, ...], fact: Callable[[Path], str]) -> str:
    return digest(*(_of(Path(source), fact) if source is not None else "" for source in sources))


def _of(path: Path, fact: Callable[[Path], str]) -> str:
    """The fact of a file, or of all files of a folder with their names; otherwise the name."""
    if path.is_file():
        return fact(path)
    files = sorted(file for file in path.iterdir() if file.is_file()) if path.is_dir() else []
    return digest(str(path), *(f"{file.name} {fact(file)}" for file in files)) if files else str(path)


def _content(path: Path) -> str:
    size = path.stat().st_size
    shown = progress(f"Checking {path.name}", size) if size >= _SHOWN_FROM else nullcontext(lambda _: None)
    whole = hashlib.blake2b(digest_size=16)
    try:
        with open_binary(path) as handle, shown as advance:
            while block := handle.read(_BLOCK):
                whole.update(block)
                advance(len(block))
    except OSError as error:  # errors while reading do not name the file
        raise bad_input(path, f"cannot be read ({error.strerror})", "name a regular file") from error
    return whole.hexdigest()
