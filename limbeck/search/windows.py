"""Split long passages into overlapping windows, so that nothing beyond the model's limit is lost (MaxP).

A window is a piece of the passage's text: `size` tokens of the model's tokeniser; the next one begins `stride` tokens
later. A passage has the score of its best window. BM25 counts the words of whole passages and needs no windows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from limbeck.data.texts import Texts
from limbeck.errors import LimbeckError
from limbeck.progress import progress

_BLOCK = 512


@dataclass(frozen=True)
class Windows:
    """The size and stride of windows."""

    size: int
    stride: int

    def __post_init__(self) -> None:
        if self.size < 1 or not 1 <= self.stride <= self.size:
            problem = f"windows of {self.size} tokens every {self.stride}"
            raise LimbeckError(
                f"{problem} would leave gaps or never end; use a stride from 1 to the size of the window"
            )


def default_windows(size: int | None, stride: int | None) -> Windows | None:
    """The requested windows; by default they overlap by half."""
    if size is None:
        if stride is not None:
            raise LimbeckError("--stride requires --window; give --window too")
        return None
    return Windows(size, stride if stride is not None else max(1, size // 2))


def cut(corpus: Texts, windows: Windows, tokenizer: Any, room: int) -> np.ndarray:
    """The windows of all passages in order: [windows, 3] int64 of row, first character, last character + 1.

    `room` is the number of tokens of a text that the model can read.
    """
    if windows.size > room:
        raise LimbeckError(
            f"a window of {windows.size} tokens is too long for the model, which reads {room}; use a smaller --window"
        )
    if not getattr(tokenizer, "is_fast", False):
        raise LimbeckError("the model's tokeniser does not give the positions of tokens; index whole passages instead")
    found: list[tuple[int, int, int]] = []
    with progress("Cutting passages", len(corpus)) as advance:
        for start in range(0, len(corpus), _BLOCK):
            texts = corpus.take(range(start, min(start + _BLOCK, len(corpus))))
            encoded = tokenizer(texts, add_special_tokens=False, return_offsets_mapping=True, verbose=False)
            for place, (text, offsets) in enumerate(zip(texts, encoded["offset_mapping"], strict=True)):
                found += [(start + place, *span) for span in _spans(text, offsets, windows)]
            advance(len(texts))
    return np.array(found, dtype=np.int64).reshape(-1, 3)


def _spans(text: str, offsets: list[tuple[int, int]], windows: Windows) -> Iterator[tuple[int, int]]:
    """The windows of one text, given the positions of its tokens; the last one ends at the end of the text."""
    if len(offsets) <= windows.size:
        yield 0, len(text)
        return
    for start in range(0, len(offsets) - windows.size + windows.stride, windows.stride):
        part = offsets[start : start + windows.size]
        yield part[0][0], part[-1][1]


def window_texts(corpus: Texts, table: np.ndarray) -> Iterator[str]:
    """The text of each window of `cut`, with one passage in memory at a time."""
    row, text = -1, ""
    for owner, first, last in table.tolist():
        if owner != row:
            row, text = owner, corpus.text_at(owner)
        yield text[first:last]


def best_windows(
    owners: np.ndarray, vectors: np.ndarray, scores: np.ndarray, k: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The k best passages of a ranked list of windows, by their best window: rows, scores, windows."""
    rows = owners[vectors]
    _, first = np.unique(rows, return_index=True)
    first = np.sort(first)[:k]
    return rows[first], scores[first], vectors[first]


def distinct(owners: np.ndarray, vectors: Iterable[np.ndarray]) -> int:
    """The minimum number of passages in a list of windows."""
    return min((len(np.unique(owners[listed])) for listed in vectors), default=0)
