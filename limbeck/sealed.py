"""JSON records with a checksum of their content, so that a changed byte is noticed.

    {"auc": 0.91, "checksum": "5f0c..."}

A record without a checksum was written by an earlier version and is accepted.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from limbeck.errors import LimbeckError, bad_input
from limbeck.files import digest, read_json, write_json
from limbeck.progress import say

CHECKSUM = "checksum"
REMEDY = "remove it and run the command again"


def seal(record: dict[str, Any]) -> dict[str, Any]:
    """The record with its checksum as the last key."""
    return {**record, CHECKSUM: _checksum(record)}


def opened(record: Any) -> dict[str, Any] | None:
    """The record without its checksum; None if the checksum does not match, or if this is not a record."""
    if not isinstance(record, dict):
        return None
    content = {key: value for key, value in record.items() if key != CHECKSUM}
    return content if record.get(CHECKSUM, _checksum(content)) == _checksum(content) else None


def write_sealed(path: str | Path, record: dict[str, Any]) -> None:
    """Write a record with its checksum, complete or not at all."""
    write_json(path, seal(record))


def read_sealed(path: str | Path, remedy: str = REMEDY) -> dict[str, Any]:
    """Read a record; a damaged one is refused."""
    record = opened(read_json(path, remedy))
    if record is None:
        raise bad_input(path, "is damaged", remedy)
    return record


def read_if_whole(path: Path) -> dict[str, Any] | None:
    """Read a record that can be computed again: None if it is missing, or damaged (with a message)."""
    if not path.exists():
        return None
    try:
        return read_sealed(path)
    except LimbeckError:
        say(f"{path}: is damaged; making it again")
        return None


def _checksum(content: dict[str, Any]) -> str:
    return digest(json.dumps(content, sort_keys=True))[:16]
