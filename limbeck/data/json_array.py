"""A JSON array of objects read one at a time: DPR's training file has six gigabytes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

from limbeck.data.fields import type_name
from limbeck.data.lines import block_lines, blocks
from limbeck.errors import bad_input

_BETWEEN = re.compile(r"[\s,]*")
_LONGEST = 64 << 20  # characters; if so much text fails to parse, the reason is not the end of a block


def read_json_array(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield (line, object) of an array of objects, or of objects one after the other."""
    decoder = json.JSONDecoder()
    rest, line, opened, closed = "", 1, False, False
    for text in chain(_texts(path), (None,)):
        rest += text or ""
        place = _BETWEEN.match(rest).end()  # type: ignore[union-attr]
        if not opened and rest.startswith("[", place):
            opened, place = True, place + 1
        start = 0
        while True:
            place = _BETWEEN.match(rest, place).end()  # type: ignore[union-attr]
            line, start = line + rest.count("\n", start, place), place
            if place == len(rest):
                break
            if opened and rest[place] == "]":
                closed, place = True, place + 1
                continue
            try:
                value, place = decoder.raw_decode(rest, place)
            except json.JSONDecodeError as error:
                if text is not None and len(rest) - error.pos < _LONGEST:
                    break
                problem = f"is not valid JSON ({error.msg})"
                remedy = "give a JSON array of objects; download the file again if it is incomplete"
                raise bad_input(path, problem, remedy, line + rest.count("\n", start, error.pos)) from error
            except ValueError as error:
                raise bad_input(path, "has a number that is too long", "write shorter numbers", line) from error
            except RecursionError as error:
                raise bad_input(path, "is nested too deeply", "give an array of flat objects", line) from error
            if not isinstance(value, dict):
                raise bad_input(path, f"contains {type_name(value)}, not an object", "give an array of objects", line)
            yield line, value
        rest = rest[start:]
    if opened and not closed:
        raise bad_input(path, "ends before its closing bracket", "download it again", line)


def _texts(path: Path) -> Iterator[str]:
    for first, block in blocks(path):
        try:
            yield block.decode("utf-8")
        except UnicodeDecodeError:
            for _ in block_lines(path, first, block):
                pass
