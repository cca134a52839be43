"""Data folders that Limbeck wrote (`pairs`, `expand`), compared with their list of files when they are read."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from limbeck.file_list import NAME, read_list, require_as_listed, write_list
from limbeck.progress import progress

REMEDY = f"make the folder again, or delete {NAME} there if you changed it yourself"


@dataclass(frozen=True)
class Written:
    """The list of a folder: the command that wrote it, its arguments, its result, and the files."""

    command: str
    made_from: dict[str, Any]
    result: dict[str, Any]
    files: dict[str, dict[str, Any]]


def record_files(
    folder: Path, command: str, made_from: dict[str, Any], result: dict[str, Any], leave_out: tuple[str, ...] = ()
) -> None:
    """Write the list of all files in a folder that is still being written, except those that match a pattern."""
    write_list(folder, {"command": command, "made_from": made_from, "result": result}, leave_out)


def read_written(folder: Path) -> Written | None:
    """The list of a data folder, or None if it has none; the list of a model does not count."""
    found = read_list(folder, REMEDY)
    return Written(**found.about, files=found.files) if found is not None and "command" in found.about else None


def require_unchanged(path: Path) -> None:
    """Compare a folder, or one file, with its list; an error names what is damaged."""
    folder = path if path.is_dir() else path.parent
    written = read_written(folder)
    if written is None:
        return
    files = {name: facts for name, facts in written.files.items() if path == folder or folder / name == path}
    with progress(f"Checking {folder.name}", len(files)) as advance:
        require_as_listed(folder, files, f"has changed since `limbeck {written.command}` wrote it", REMEDY, advance)
