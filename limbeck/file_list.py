"""Folders that Limbeck wrote list their files with checksums, so that a damaged file is named and not used.

Saved models have such a list, and so do the data that `pairs` and `expand` write. A changed letter in a line of JSON
is still JSON, and a changed bit in a weight is still a number, so only a checksum finds them. Other programs ignore the
list. Files that are added later are not in it and may change. A folder without a list comes from another program or an
older version and is read without checks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from limbeck.errors import bad_input
from limbeck.files import checksum, read_json
from limbeck.sealed import opened, write_sealed

NAME = "limbeck-files.json"
FORMAT = 1


@dataclass(frozen=True)
class FileList:
    """The files of a folder, and the notes that their writer added."""

    files: dict[str, dict[str, Any]]  # path inside the folder -> bytes and blake2b
    about: dict[str, Any]


def write_list(folder: Path, about: dict[str, Any] | None = None, leave_out: Sequence[str] = ()) -> None:
    """List all files of a folder that is still being written, except those that match a pattern."""
    files = sorted(file for file in folder.rglob("*") if file.is_file() and file.name != NAME)
    kept = [file for file in files if not any(file.match(pattern) for pattern in leave_out)]
    listed = {
        file.relative_to(folder).as_posix(): {"bytes": file.stat().st_size, "blake2b": checksum(file)} for file in kept
    }
    write_sealed(folder / NAME, {"format": FORMAT, "about": about or {}, "files": listed})


def read_list(folder: Path, remedy: str) -> FileList | None:
    """The list of a folder, or None if it has none; a damaged list is refused."""
    place = folder / NAME
    if not place.is_file():
        return None
    record = opened(read_json(place, remedy))
    if record is not None and record.get("format", FORMAT) != FORMAT:
        raise bad_input(place, "was written by another version of limbeck", remedy)
    if record is None or not _is_list(record.get("files"), record.get("about", {})):
        raise bad_input(place, "is damaged", remedy)
    return FileList(record["files"], record.get("about", {}))


def _is_list(files: Any, about: Any) -> bool:
    """Whether a record has the form of a file list and names no file outside its folder."""
    if not isinstance(files, dict) or not files or not isinstance(about, dict):
        return False
    whole = all(isinstance(facts, dict) and {"bytes", "blake2b"} == set(facts) for facts in files.values())
    return whole and all(not Path(name).is_absolute() and ".." not in Path(name).parts for name in files)


def require_as_listed(
    folder: Path,
    files: dict[str, dict[str, Any]],
    problem: str,
    remedy: str,
    advance: Callable[[int], None] | None = None,
) -> None:
    """Refuse a folder if one of its listed files is missing or has changed."""
    for name, facts in files.items():
        file = folder / name
        if not file.is_file():
            raise bad_input(file, "no such file", remedy)
        if file.stat().st_size != facts["bytes"] or _checksum(file) != facts["blake2b"]:
            raise bad_input(file, problem, remedy)
        if advance is not None:
            advance(1)


def _checksum(file: Path) -> str:
    try:
        return checksum(file)
    except OSError as error:
        raise bad_input(file, f"cannot be read ({error.strerror})", "check its permissions") from error
