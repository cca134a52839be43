"""Checks of single fields of a data file, and their error messages."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from limbeck.errors import bad_input


def type_name(value: Any) -> str:
    """The name of a value's type in JSON, for messages."""
    names: dict[type, str] = {dict: "an object", list: "a list", str: "a string", bool: "a boolean"}
    if value is None:
        return "null"
    return names.get(type(value), "a number")


def is_utf8(text: str) -> bool:
    """Whether a text can be encoded: JSON escapes can contain half of a surrogate pair, which is not a character."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def whole_number(path: str | Path, number: int, text: str, what: str) -> int:
    """A field that must be a whole number; `1.0` is accepted."""
    try:
        return int(text)
    except ValueError:
        pass
    try:
        value = float(text)
        if value.is_integer():
            return int(value)
    except ValueError:
        pass
    raise bad_input(path, f"{what} {text!r} is not a whole number", "write 0, 1, 2, ...", number)


LARGEST = 1e15  # its squares can be summed in float32, which training uses


def finite(path: str | Path, number: int, value: Any, what: str = "score") -> float:
    """A field that must be a finite number: NaN and infinity break training and sorting."""
    try:
        if isinstance(value, bool):
            raise TypeError
        result = float(value)
    except OverflowError:  # a whole number of hundreds of digits
        result = math.inf
    except (TypeError, ValueError) as error:
        raise bad_input(path, f"{what} {value!r} is not a number", "give a finite number", number) from error
    if not math.isfinite(result):
        raise bad_input(path, f"{what} is {result}", "leave the line out or give a finite number", number)
    if abs(result) > LARGEST:
        raise bad_input(path, f"{what} is {result:g}", f"scale it to at most {LARGEST:g}", number)
    return result


def identifier(path: str | Path, number: int, value: Any, what: str) -> str:
    """An id as a string; whole numbers are accepted, because many files write ids as numbers."""
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if not isinstance(value, str):
        raise bad_input(path, f"{what} is {type_name(value)}, not a string", "give every row a string id", number)
    if not value.strip():
        raise bad_input(path, f"{what} is empty", "give every row an id", number)
    return value
