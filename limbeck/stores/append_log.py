"""A file of JSON lines that a long job appends to: what was written is never lost, what a kill cut short is dropped."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from limbeck.data.lines import lines, parse_json
from limbeck.files import fsync_directory, naming_disk_errors

_BLOCK = 2**20


class AppendLog:
    """Whole lines only. One process at a time may append (`limbeck.files.alone_in`)."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lines = self._recover() if path.exists() else 0

    def __len__(self) -> int:
        return self._lines

    def append(self, records: Iterable[dict[str, Any]]) -> None:
        """Add records; when this returns they survive a power cut."""
        added = [json.dumps(record, ensure_ascii=False, allow_nan=False) + "\n" for record in records]
        with naming_disk_errors(self.path):
            fresh = not self.path.exists()
            with open(self.path, "ab") as handle:
                handle.write("".join(added).encode())
                handle.flush()
                os.fsync(handle.fileno())
            if fresh:
                fsync_directory(self.path.parent)
        self._lines += len(added)

    def records(self, start: int = 0) -> Iterator[dict[str, Any]]:
        """The records from number `start` on."""
        if self._lines > start:
            yield from (parse_json(self.path, *line) for line in islice(lines(self.path), start, None))

    def _recover(self) -> int:
        """Cut off a last line without its end; the number of whole lines."""
        count = end = position = 0
        with open(self.path, "r+b") as handle:
            while block := handle.read(_BLOCK):
                count += block.count(b"\n")
                end = position + block.rindex(b"\n") + 1 if b"\n" in block else end
                position += len(block)
            if end < position:
                handle.truncate(end)
                os.fsync(handle.fileno())
        return count
