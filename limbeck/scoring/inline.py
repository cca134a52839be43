"""A list that contains its texts: each pair becomes rows of distinct texts, identified by their content."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing
from itertools import islice
from pathlib import Path

import numpy as np

from limbeck.data.cache import write_pieces
from limbeck.data.pairs import text_names, texts_of
from limbeck.data.records import Record, read_records
from limbeck.errors import bad_input
from limbeck.progress import progress
from limbeck.scoring.distinct import DistinctTexts

IDS = (("left", "right"), ("left_id", "right_id"), ("query_id", "document_id"), ("query-id", "corpus-id"))
REMEDY = "name its columns left and right (ids), or text_a and text_b (texts)"
_ROWS = 16384


def texts_file(folder: Path, position: int) -> Path:
    """The files with the distinct texts of a position."""
    return folder / f"texts-{position}.arrow"


def write_inline(path: Path, folder: Path) -> tuple[list[str], list[str]]:
    """Write `rows.npy` and the distinct texts; returns the text columns, and all columns of the first line."""
    naming: list[str] = []
    there: list[str] = []

    def rows(stack: ExitStack) -> Iterator[np.ndarray]:
        records = read_records(path)
        known: list[DistinctTexts] = []
        with progress("Reading pairs") as advance:
            while block := list(islice(records, _ROWS)):
                if not known:
                    first = _texts(path, *block[0], 0)
                    naming.extend(text_names(block[0][1]) or [])
                    there.extend(block[0][1])
                    places = [texts_file(folder, position) for position in range(len(first))]
                    known = [stack.enter_context(closing(DistinctTexts(place))) for place in places]
                found = [_texts(path, number, record, len(known)) for number, record in block]
                columns = [texts.rows([row[at] for row in found]) for at, texts in enumerate(known)]
                yield np.stack(columns, axis=1).astype(np.int32)
                advance(len(block))

    with ExitStack() as stack:  # not in the generator: if it is abandoned, errors on closing files would be lost
        write_pieces(folder / "rows.npy", rows(stack))
    if not naming:
        raise bad_input(path, "contains no pairs", REMEDY)
    return naming, there


def _texts(path: Path, number: int, record: Record, wanted: int) -> tuple[str, ...]:
    found = texts_of(record)
    if found is None and any(set(pair) <= set(record) for pair in IDS):
        raise bad_input(path, "names texts by their ids", "give their texts with --left and --right", number)
    if found is not None and any(not isinstance(text, str) for text in found):
        raise bad_input(path, "has a text that is not a string", "write every text as a string", number)
    if found is None:
        raise bad_input(path, f"has the columns {', '.join(record)}", REMEDY, number)
    if len(found) < 2:
        raise bad_input(path, f"has {len(found)} texts", "give every pair two or more", number)
    if wanted and len(found) != wanted:
        problem = f"has {len(found)} texts where the first line has {wanted}"
        raise bad_input(path, problem, "give every pair the same number", number)
    empty = next((at for at, text in enumerate(found, 1) if not text.strip()), None)
    if empty is not None:
        raise bad_input(path, f"text {empty} is empty", "write every text or leave the row out", number)
    require_characters(path, number, found)
    return found


def require_characters(path: Path, number: int, texts: tuple[str, ...]) -> None:
    """Refuse half of a surrogate pair, which JSON allows but UTF-8 cannot encode."""
    for at, text in enumerate(texts, 1):
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as error:
            problem = f"text {at} contains half of a surrogate pair, which is not a character"
            raise bad_input(path, problem, "write the file as UTF-8", number) from error
