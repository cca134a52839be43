"""Checkpoints that are complete or absent: a manifest of checksums is written last, then the folder is renamed."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from limbeck.errors import LimbeckError
from limbeck.files import checksum, fsync_directory, read_json, write_json
from limbeck.progress import say

MANIFEST = "manifest.json"
PREFIX = "checkpoint-"
KEPT = 2


def seal(written: Path, place: Path) -> None:
    """Turn the written folder into a checkpoint, and delete all but the newest few."""
    files = sorted(file for file in written.rglob("*") if file.is_file())
    for file in files:
        with open(file, "rb") as handle:
            os.fsync(handle.fileno())
    write_json(written / MANIFEST, {str(file.relative_to(written)): checksum(file) for file in files})
    shutil.rmtree(place, ignore_errors=True)
    os.replace(written, place)
    fsync_directory(place.parent)
    for old in _checkpoints(place.parent)[KEPT:]:
        shutil.rmtree(old, ignore_errors=True)


def newest_complete(folder: Path) -> Path | None:
    """The newest checkpoint with complete and undamaged files; damaged ones are reported and skipped."""
    for candidate in _checkpoints(folder):
        problem = _damage(candidate)
        if problem is None:
            return candidate
        say(f"{candidate}: {problem}; using an older checkpoint instead")
    return None


def _checkpoints(folder: Path) -> list[Path]:
    """Newest first."""
    found = [path for path in folder.glob(f"{PREFIX}*") if path.name.removeprefix(PREFIX).isdigit()]
    return sorted(found, key=lambda path: -int(path.name.removeprefix(PREFIX)))


def _damage(folder: Path) -> str | None:
    try:
        manifest = read_json(folder / MANIFEST)
    except LimbeckError:
        return "has no manifest"
    if not isinstance(manifest, dict):
        return "has a damaged manifest"
    for name, expected in manifest.items():
        file = folder / name
        if not file.is_file() or checksum(file) != expected:
            return f"{name} is damaged"
    return None
