"""Text that is safe to print: a document must not be able to recolour, overwrite or reorder the terminal's output.

Everything that a command prints passes through `PrintableStream` (`print`, warnings, tracebacks) or through
`limbeck.console` (tables, bars and hits, which have colours). Both remove the characters that `printable` removes.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TextIO

_CONTROLS = [code for code in (*range(0x20), *range(0x7F, 0xA0)) if chr(code) not in "\n\t"]
_LINES = [0x2028, 0x2029]  # separators of lines and paragraphs
_BIDI = [0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A)]
_TAGS = range(0xE0000, 0xE0080)  # a second, invisible ASCII
UNSAFE = frozenset(map(chr, (*_CONTROLS, *_LINES, *_BIDI, *_TAGS)))
_DROP = dict.fromkeys(map(ord, UNSAFE))
_ESCAPE = {ord(char): json.dumps(char)[1:-1] if char > "\x7f" else f"\\u{ord(char):04x}" for char in UNSAFE}


def printable(text: str) -> str:
    """The text without control characters (other than newline and tab), escape sequences and bidirectional marks."""
    return text if text.isascii() and text.isprintable() else text.translate(_DROP)


def json_text(value: Any, indent: int | None = 2) -> str:
    r"""`value` as readable JSON. Characters that a terminal would act on become \u escapes, so nothing is lost."""
    return json.dumps(value, indent=indent, ensure_ascii=False).translate(_ESCAPE)


class PrintableStream:
    """A text stream that filters with `printable`. Rich writes colours, so it uses `rich_proxied_file` directly."""

    def __init__(self, stream: TextIO) -> None:
        self.rich_proxied_file = stream

    def write(self, text: str) -> int:
        self.rich_proxied_file.write(printable(text))
        return len(text)

    def writelines(self, lines: Iterator[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.rich_proxied_file, name)


@contextmanager
def printable_streams() -> Iterator[None]:
    """Print only printable text on standard output and standard error until the block ends."""
    before = sys.stdout, sys.stderr
    wrapped = PrintableStream(sys.stdout), PrintableStream(sys.stderr)
    sys.stdout, sys.stderr = wrapped
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before
