"""A saved model folder lists its files with their checksums, so that a damaged one is named and not used.

Other programs ignore the list. Files that are added later, a calibration for one, are not in it and may change.
"""

from __future__ import annotations

import json
from pathlib import Path

from limbeck.errors import LimbeckError, bad_input
from limbeck.files import checksum, write_json

MANIFEST = "limbeck-files.json"
FORMAT = 1
REMEDY = f"copy the model again; if you changed it on purpose, delete {MANIFEST}"


def write_manifest(folder: Path) -> None:
    """List everything in a folder that is being saved."""
    files = sorted(file for file in folder.rglob("*") if file.is_file() and file.name != MANIFEST)
    listed = {
        file.relative_to(folder).as_posix(): {"bytes": file.stat().st_size, "blake2b": checksum(file)} for file in files
    }
    write_json(folder / MANIFEST, {"format": FORMAT, "files": listed})


def check_manifest(folder: Path) -> None:
    """Refuse a folder whose files are not those that were saved; one without a list is another program's, or older."""
    place = folder / MANIFEST
    if not place.is_file():
        return
    for name, facts in _listed(place).items():
        file = folder / name
        if not file.is_file():
            raise bad_input(file, "no such file", REMEDY)
        if file.stat().st_size != facts["bytes"] or _checksum(file) != facts["blake2b"]:
            raise bad_input(file, "is not as it was saved (its checksum differs)", REMEDY)


def _listed(place: Path) -> dict[str, dict]:
    try:
        value = json.loads(place.read_text(encoding="utf-8"))
        files = value["files"]
        whole = value["format"] == FORMAT and all({"bytes", "blake2b"} == set(facts) for facts in files.values())
        inside = all(not Path(name).is_absolute() and ".." not in Path(name).parts for name in files)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise bad_input(place, "is damaged", REMEDY) from error
    if not files or not whole or not inside:
        raise bad_input(place, "is damaged", REMEDY)
    return files


def _checksum(file: Path) -> str:
    try:
        return checksum(file)
    except OSError as error:
        raise LimbeckError(f"{file}: cannot be read ({error.strerror}); check its permissions") from error
