"""The distinct texts of a list that is read once: texts and their digests are written to disk on the way.

A text costs 24 bytes for its digest and its row, in sorted runs as in the stores. Runs are merged as they grow, and
long runs are in mapped files, so that memory does not grow with the number of texts.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa

from limbeck.data.texts import SCHEMA, Texts
from limbeck.stores.digests import first_occurrences, locate, sorted_index, text_digests

_ON_DISK, _LONGEST = 1 << 16, 1 << 20  # texts of a run: minimum for a file, and maximum


class DistinctTexts:
    """Gives each new text the next row, and writes it to `file`."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._handle = open(file, "wb")  # noqa: SIM115  closed by `close`
        self._writer = pa.ipc.new_file(self._handle, SCHEMA)
        self._runs: list[np.ndarray] = []  # [3, texts] each: as `sorted_index`, with global rows
        self._saved = 0
        self.count = 0

    def rows(self, column: list[str]) -> np.ndarray:
        """The row of each text: [texts] int64."""
        digests = text_digests(column)
        rows = locate(self._runs, digests)[1]
        unknown = np.flatnonzero(rows < 0)
        if len(unknown):
            new = unknown[first_occurrences(digests[unknown])]
            self._write([column[at] for at in new])
            run = self._run(digests[new])
            rows[unknown] = locate([run], digests[unknown])[1]
            self._keep(run)
        return rows

    def _write(self, texts: list[str]) -> None:
        empty = pa.repeat(pa.scalar("", pa.large_string()), len(texts))  # these texts are not looked up by id
        self._writer.write_batch(pa.record_batch([empty, empty, pa.array(texts, pa.large_string())], schema=SCHEMA))

    def _run(self, digests: np.ndarray) -> np.ndarray:
        run = sorted_index(digests)
        run[2] += np.uint64(self.count)
        self.count += len(digests)
        return run

    def _keep(self, run: np.ndarray) -> None:
        """Add a run, merged with earlier runs that are not much longer, so that there are few runs and few merges."""
        while self._runs and self._runs[-1].shape[1] <= 2 * run.shape[1] <= _LONGEST:
            run = np.concatenate([self._runs.pop(), run], axis=1)
            run = np.ascontiguousarray(run[:, np.lexsort((run[1], run[0]))])
        self._runs.append(self._mapped(run) if run.shape[1] >= _ON_DISK else run)

    def _mapped(self, run: np.ndarray) -> np.ndarray:
        """A run mapped from an unlinked file, which disappears with its last mapping."""
        file = self._file.with_suffix(f".known-{self._saved}.npy")
        self._saved += 1
        np.save(file, run, allow_pickle=False)
        mapped = np.load(file, mmap_mode="r", allow_pickle=False).view(np.ndarray)
        file.unlink()
        return mapped

    def close(self) -> None:
        """Finish the file."""
        self._runs.clear()
        try:
            self._writer.close()
        finally:
            self._handle.close()


def open_distinct(file: Path) -> Texts:
    """The texts in row order."""
    reader = pa.ipc.open_file(pa.memory_map(str(file)))
    if reader.schema != SCHEMA:
        raise ValueError("it is not a table of texts")
    batches = [reader.get_batch(number) for number in range(reader.num_record_batches)]
    return Texts(batches, np.zeros((2, 0), np.uint64))
