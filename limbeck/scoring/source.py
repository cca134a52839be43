"""The pairs to score: a file of pairs, or all pairs of two sets, as row numbers of text tables.

A pair file names texts by id (`left`, `right`; the texts are in separate files), or contains the texts
(`text_a`, `text_b`, ... as any pair file). Either becomes a folder of the job, with checksums:

    rows.npy          [pairs, positions]: rows of the texts
    texts-0.arrow ... distinct texts of each position, if the list has them
    columns.arrow     other columns of the list, if they are asked for
    shown.json        the columns of the list in the result

A cross product is never written to disk: pair p is left p // rights, right p % rights.
"""

from __future__ import annotations

import shutil
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa

from limbeck.data.cache import write_pieces
from limbeck.data.checked import Damaged, require_folder, sum_folder
from limbeck.data.passages import load_texts
from limbeck.data.texts import Texts
from limbeck.errors import LimbeckError, bad_input
from limbeck.files import directory_atomically, read_json, write_json
from limbeck.progress import say
from limbeck.scoring.distinct import open_distinct
from limbeck.scoring.id_lists import first_columns, id_rows
from limbeck.scoring.inline import texts_file, write_inline
from limbeck.scoring.list_columns import Shown, chosen, open_columns, write_columns

SIDES = ["left", "right"]
_ROWS = 65536


@dataclass(frozen=True)
class Wanted:
    """Which pairs: a list, or left x right; and the columns of the list to copy."""

    pairs: Path | None
    left: str | None
    right: str | None
    columns: str | None = None

    def sides(self) -> list[str]:
        """Both files of texts by id."""
        if self.left is None or self.right is None:
            what = "a list of ids requires the texts of both sides; give --left and --right"
            none = "nothing to score; give a list of pairs, or --left and --right for all pairs"
            raise LimbeckError(none if self.pairs is None else what)
        return [self.left, self.right]


@dataclass(frozen=True)
class Source:
    """Pairs as rows of text tables."""

    tables: list[Texts]  # one for each position
    pairs: np.ndarray | None  # [pairs, positions] int32, mapped; None for a cross product
    named: bool  # whether the tables have the user's ids
    naming: list[str]  # column names of the ids or texts in the result
    shown: Shown
    columns: pa.Table | None = field(default=None, repr=False)  # a row for each pair

    def __len__(self) -> int:
        if self.pairs is not None:
            return len(self.pairs)
        return len(self.tables[0]) * len(self.tables[1])

    def rows(self, start: int, stop: int) -> np.ndarray:
        """The rows [pairs, positions] of pairs `start` to `stop`."""
        if self.pairs is not None:
            return np.asarray(self.pairs[start:stop], dtype=np.int64)
        return np.stack(np.divmod(np.arange(start, stop), len(self.tables[1])), axis=1)

    def named_rows(self) -> list[np.ndarray]:
        """The rows of each table that occur in pairs, ascending; needs one byte per text."""
        if self.pairs is None:
            return [np.arange(len(table)) for table in self.tables]
        seen = [np.zeros(len(table), dtype=bool) for table in self.tables]
        for start in range(0, len(self.pairs), _ROWS):
            for known, column in zip(seen, self.pairs[start : start + _ROWS].T, strict=True):
                known[column] = True
        return [np.flatnonzero(known) for known in seen]


def prepare_source(wanted: Wanted, work: Path) -> Source:
    """Read the pairs into the folder `work`, unless they are there and undamaged, and open them."""
    if wanted.pairs is None:
        tables = [load_texts(side) for side in wanted.sides()]
        for name, table in zip(wanted.sides(), tables, strict=True):
            if (empty := table.empty()).any():
                problem = f"text {table.id_at(int(empty.argmax()))!r} is empty"
                raise bad_input(name, problem, "write it, or leave it out")
        return Source(tables, None, True, SIDES, chosen(wanted.columns, SIDES, SIDES))
    place = work / "pairs"
    if place.exists():
        try:
            require_folder(place)
            return open_source(wanted, work)
        except Damaged as error:
            say(f"{place}: is damaged ({error}); reading the list again")
            shutil.rmtree(place)
    with directory_atomically(place) as folder:
        _write(wanted, folder)
        sum_folder(folder)
    return open_source(wanted, work)


def _write(wanted: Wanted, folder: Path) -> None:
    assert wanted.pairs is not None
    if wanted.left is None and wanted.right is None:
        naming, there = write_inline(wanted.pairs, folder)
        shown, names = chosen(wanted.columns, naming, there), naming
    else:
        tables = [load_texts(side) for side in wanted.sides()]
        naming, there = first_columns(wanted.pairs)
        shown, names = chosen(wanted.columns, naming, there), SIDES
        write_pieces(folder / "rows.npy", id_rows(wanted.pairs, tables))
    if shown.others:
        write_columns(wanted.pairs, shown.others, folder / "columns.arrow")
    write_json(folder / "shown.json", {"naming": names, "shown": asdict(shown)})


def open_source(wanted: Wanted, work: Path) -> Source:
    """Open what `prepare_source` prepared, without reading it completely: for workers of the same call."""
    if wanted.pairs is None:
        return Source(
            [load_texts(side) for side in wanted.sides()], None, True, SIDES, chosen(wanted.columns, SIDES, SIDES)
        )
    place = work / "pairs"
    named = wanted.left is not None or wanted.right is not None
    try:
        record = read_json(place / "shown.json")
        shown = Shown(**record["shown"])
        positions = range(len(record["naming"]))
        rows = mapped_rows(place / "rows.npy")
        tables = (
            [load_texts(side) for side in wanted.sides()]
            if named
            else [open_distinct(texts_file(place, position)) for position in positions]
        )
        columns = open_columns(place / "columns.arrow") if shown.others else None
    except (OSError, ValueError, EOFError, KeyError, TypeError) as error:  # including Arrow's errors
        raise damaged(place, error) from error
    return Source(tables, rows, named, record["naming"], shown, columns)


def mapped_rows(file: Path) -> np.ndarray:
    """The row numbers of a job on disk."""
    try:
        return np.load(file, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise damaged(file, error) from error


def damaged(file: Path, error: Exception) -> LimbeckError:
    reason = "no such file" if isinstance(error, FileNotFoundError) else str(error).partition("\n")[0]
    return bad_input(file, f"is damaged ({reason})", "run the same command again to rebuild it")
