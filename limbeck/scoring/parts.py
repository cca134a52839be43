"""The score files, one per shard: complete or absent; damaged ones are scored again.

A part's checksum is in a separate file with the same name (`_job/parts`), written after the part. A part without
one, or with a wrong one, counts as missing: a kill, a flipped bit or an incomplete copy costs one shard.
"""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from limbeck.errors import LimbeckError
from limbeck.files import checksum, read_json, recover_directory, write_atomically, write_json
from limbeck.progress import track
from limbeck.scoring.plan import OWN, PARTS, SCORES, WORK

_PARTIAL = re.compile(r"\.(.+)\.[0-9a-f]{8}\.partial")


def part_file(folder: Path, shard: int) -> Path:
    return folder / SCORES / f"part-{shard:07}.parquet"


def _note(folder: Path, shard: int) -> Path:
    return folder / PARTS / f"part-{shard:07}.json"


def write_part(folder: Path, shard: int, table: pa.Table) -> None:
    """Write the scores of a shard, and then their checksum."""
    with write_atomically(part_file(folder, shard)) as handle:
        pq.write_table(table, handle, compression="zstd")
        handle.flush()
        written = checksum(handle.name)
    write_json(_note(folder, shard), {"checksum": written})


def is_whole(folder: Path, shard: int) -> bool:
    """Whether a shard's file exists and matches its checksum."""
    if not part_file(folder, shard).is_file():
        return False
    try:
        noted = read_json(_note(folder, shard))
        return isinstance(noted, dict) and noted.get("checksum") == checksum(part_file(folder, shard))
    except (LimbeckError, OSError):
        return False


def missing_parts(folder: Path, shards: int) -> list[int]:
    """The shards to score; existing files are read completely."""
    numbers = range(shards)
    if not any((folder / SCORES).glob("part-*.parquet")):
        return list(numbers)
    return [number for number in track(numbers, "Checking scores") if not is_whole(folder, number)]


def forget_parts(folder: Path, shards: list[int]) -> None:
    """Delete these shards, so that the next call scores them again."""
    for shard in shards:
        _note(folder, shard).unlink(missing_ok=True)


def clear_remains(folder: Path) -> None:
    """Remove files that killed processes were writing; those of running processes stay."""
    for place in (folder / SCORES, folder / PARTS, folder / OWN, folder / WORK):
        for entry in list(place.iterdir()) if place.is_dir() else []:
            if (found := _PARTIAL.fullmatch(entry.name)) is not None:
                recover_directory(place / found.group(1))
