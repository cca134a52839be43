"""Data folders that Limbeck wrote itself (`pairs`, `expand`): a list of checksums, compared whenever the data are read.

A changed letter in a line of JSON is still JSON: only a checksum shows that a text is no longer the one that was
written. A folder without the list is data like any other, and is read as it is.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from limbeck.errors import LimbeckError, bad_input
from limbeck.files import checksum, digest, read_json, write_json
from limbeck.progress import progress

NAME = "limbeck-files.json"
KIND = "limbeck data"
VERSION = 1


@dataclass(frozen=True)
class Written:
    """What a folder holds: the command that wrote it, what that was given and has to say, and its files."""

    command: str
    made_from: dict[str, Any]
    result: dict[str, Any]
    files: dict[str, str]  # path inside the folder -> checksum


def record_files(
    folder: Path, command: str, made_from: dict[str, Any], result: dict[str, Any], leave_out: tuple[str, ...] = ()
) -> None:
    """Write the list of all files in a folder that is not yet visible, but for those that match a pattern."""
    files = sorted(file for file in folder.rglob("*") if file.is_file())
    kept = [file for file in files if not any(file.match(pattern) for pattern in leave_out)]
    sums = {str(file.relative_to(folder)): checksum(file) for file in kept}
    record = {"kind": KIND, "version": VERSION, "command": command, "made_from": made_from, "result": result}
    write_json(folder / NAME, {**record, "files": sums, "checksum": _own(record | {"files": sums})})


def read_written(folder: Path) -> Written | None:
    """The list of a folder, or None where it has none."""
    path = folder / NAME
    if not path.exists():
        return None
    remedy = f"make the folder again, or remove {NAME} to read the data unchecked"
    record = read_json(path, remedy)
    if not isinstance(record, dict) or record.pop("checksum", None) != _own(record):
        raise bad_input(path, "is damaged: its checksum does not fit its content", remedy)
    if record.get("kind") != KIND or record.get("version") != VERSION:
        raise bad_input(path, "was written by another version of limbeck", remedy)
    return Written(record["command"], record["made_from"], record["result"], record["files"])


def require_unchanged(path: Path) -> None:
    """Compare a folder, or one file, with what `limbeck` wrote there; what is damaged is named."""
    folder = path if path.is_dir() else path.parent
    written = read_written(folder)
    if written is None:
        return
    names = [name for name in written.files if path == folder or folder / name == path]
    with progress(f"Checking {folder.name}", len(names)) as advance:
        for name in names:
            if _sum(folder / name) != written.files[name]:
                raise _damaged(folder / name, written.command)
            advance(1)


def _damaged(file: Path, command: str) -> LimbeckError:
    problem = f"is not as `limbeck {command}` wrote it"
    return bad_input(file, problem, f"make the folder again, or remove {NAME} there if you changed it yourself")


def _sum(file: Path) -> str | None:
    try:
        return checksum(file)
    except OSError:
        return None


def _own(record: dict[str, Any]) -> str:
    return digest(json.dumps(record, sort_keys=True, ensure_ascii=False))
