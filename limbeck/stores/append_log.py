"""A file of JSON lines that a long job appends to: complete lines are never lost, incomplete ones are dropped."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from limbeck.data.lines import lines, parse_json
from limbeck.files import digest, fsync_directory, naming_disk_errors
from limbeck.progress import say

_BLOCK = 2**20
_CHECKED = re.compile(rb'(.*), "checksum": "([0-9a-f]{32})"}\n')


class AppendLog:
    """A log of whole lines. Only one process at a time may append (`limbeck.files.alone_in`).

    With `checked`, every line ends with its checksum. When the log is opened, the first damaged line and all lines
    after it are dropped, so that their work is done again.
    """

    def __init__(self, path: Path, checked: bool = False) -> None:
        self.path, self._checked = path, checked
        self._lines = self._recover() if path.exists() else 0

    def __len__(self) -> int:
        return self._lines

    def append(self, records: Iterable[dict[str, Any]]) -> None:
        """Append records; when this returns they survive a power cut."""
        added = [json.dumps(record, ensure_ascii=False, allow_nan=False) + "\n" for record in records]
        if self._checked:
            added = [_with_checksum(line) for line in added]
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
        """The records, starting with number `start`."""
        if self._lines > start:
            yield from (parse_json(self.path, *line) for line in islice(lines(self.path), start, None))

    def _recover(self) -> int:
        """Cut off an incomplete last line, and everything from a damaged line on; returns the number of whole lines."""
        if self._checked:
            return self._recover_checked()
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

    def _recover_checked(self) -> int:
        count = end = 0
        with open(self.path, "r+b") as handle:
            for line in handle:
                if not _is_whole(line):
                    break
                count, end = count + 1, end + len(line)
            if end < os.fstat(handle.fileno()).st_size:
                if line.endswith(b"\n"):  # otherwise it is only incomplete, after a kill
                    say(f"{self.path}:{count + 1}: is damaged; everything from this line on is computed again")
                handle.truncate(end)
                os.fsync(handle.fileno())
        return count


def _with_checksum(line: str) -> str:
    return f'{line[:-2]}, "checksum": "{digest(line)}"}}\n'


def _is_whole(line: bytes) -> bool:
    found = _CHECKED.fullmatch(line)
    return found is not None and digest(found[1] + b"}\n") == found[2].decode()
