"""Find the row of a text, for files that contain texts instead of ids."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import numpy as np

from limbeck.data.texts import Texts
from limbeck.progress import track


def plain(text: str) -> str:
    """A text with normalised white space, which other tools change most often."""
    return " ".join(text.split())


def text_key(text: str) -> int:
    """A 64-bit digest of the plain text."""
    return int.from_bytes(hashlib.blake2b(plain(text).encode("utf-8"), digest_size=8).digest(), "little")


class TextLookup:
    """Rows by text, with or without its title; if texts are equal, the first row counts."""

    def __init__(self, texts: Texts) -> None:
        self._texts = texts
        keys = np.fromiter(self._keys(), dtype=np.uint64, count=2 * len(texts))
        self._order = np.argsort(keys, kind="stable")
        self._sorted = keys[self._order]

    def _keys(self) -> Iterator[int]:
        for _, title, text in track(self._texts.records(), "Indexing texts", len(self._texts)):
            yield text_key(f"{title} {text}" if title else text)
            yield text_key(text)

    def row(self, text: str) -> int:
        """The row of a text, or -1."""
        key = np.uint64(text_key(text))
        place = int(np.searchsorted(self._sorted, key))
        while place < len(self._sorted) and self._sorted[place] == key:
            row = int(self._order[place]) // 2
            if plain(text) in (plain(self._texts.text_at(row)), plain(self._texts.record_at(row)[2])):
                return row
            place += 1
        return -1
