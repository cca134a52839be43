"""The files of one shard of scores.

pairs.arrow   query, document (dictionary-encoded ids) and score, grouped by query; any Arrow reader opens it
index.npy     [3, pairs]: sorted digests of the pairs, and their rows
queries.npy   [3, queries]: sorted digests of the query ids, and their codes
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow as pa

from limbeck.stores.digests import digests_in_row_order, find, sorted_index, text_digests
from limbeck.stores.mapped import FileRecord, write_array, write_bytes
from limbeck.stores.shards import Facts, Files, MappedShard


class ScoreShard:
    """A mapped shard, read as Arrow without a copy."""

    def __init__(self, mapped: MappedShard) -> None:
        self.mapped = mapped

    @cached_property
    def table(self) -> pa.Table:
        content = pa.py_buffer(self.mapped["pairs.arrow"].content)
        return pa.ipc.open_file(pa.BufferReader(content)).read_all()

    @cached_property
    def scores(self) -> np.ndarray:
        """[pairs, outputs] float32."""
        return _scores(self.table).reshape(self.mapped.rows, -1)

    @cached_property
    def query_codes(self) -> np.ndarray:
        """The query of each row; ascending."""
        return _codes(self.table, "query")

    @cached_property
    def document_codes(self) -> np.ndarray:
        return _codes(self.table, "document")

    @cached_property
    def query_ids(self) -> pa.Array:
        return self.table["query"].chunk(0).dictionary

    @cached_property
    def document_ids(self) -> pa.Array:
        return self.table["document"].chunk(0).dictionary

    def rows_of(self, query: np.ndarray) -> slice:
        """The rows of the query with this digest [1, 16]; an empty slice if it is not in the shard."""
        code = int(find(self.mapped["queries.npy"].array, query)[0])
        if code < 0:
            return slice(0, 0)
        start, end = np.searchsorted(self.query_codes, np.array([code, code + 1], dtype=self.query_codes.dtype))
        return slice(int(start), int(end))

    def documents(self, rows: slice | np.ndarray) -> list[str]:
        """The document ids of some rows."""
        return self.document_ids.take(pa.array(self.document_codes[rows])).to_pylist()


def write_shard(
    folder: Path, query_ids: Sequence[str], document_ids: Sequence[str], scores: np.ndarray, digests: np.ndarray
) -> tuple[Files, Facts]:
    """Write the files of a new shard; scores are [pairs, outputs] float32."""
    columns = {
        "query": pa.array(query_ids, pa.string()).dictionary_encode(),
        "document": pa.array(document_ids, pa.string()).dictionary_encode(),
        "score": _score_column(scores),
    }
    return _write(folder, pa.table(columns), digests)


def merge_shards(sources: Sequence[MappedShard], folder: Path) -> tuple[Files, Facts]:
    """Write several shards as one, with the pairs of each query next to each other."""
    table = pa.concat_tables([ScoreShard(source).table for source in sources]).unify_dictionaries().combine_chunks()
    return _write(
        folder, table, np.concatenate([digests_in_row_order(source["index.npy"].array) for source in sources])
    )


def _write(folder: Path, table: pa.Table, digests: np.ndarray) -> tuple[Files, Facts]:
    by_query = np.argsort(_codes(table, "query"), kind="stable")
    grouped = table.take(pa.array(by_query)).combine_chunks()
    queries = grouped["query"].chunk(0).dictionary.to_pylist()
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, grouped.schema) as writer:
        writer.write_table(grouped)
    return {
        "index.npy": _write_index(folder / "index.npy", digests[by_query]),
        "queries.npy": _write_index(folder / "queries.npy", text_digests(queries)),
        "pairs.arrow": write_bytes(folder / "pairs.arrow", [memoryview(sink.getvalue())]),
    }, {}


def _write_index(path: Path, digests: np.ndarray) -> FileRecord:
    index = sorted_index(digests)
    return write_array(path, [index], len(index), like=index)


def _codes(table: pa.Table, column: str) -> np.ndarray:
    return table[column].chunk(0).indices.to_numpy()


def _score_column(scores: np.ndarray) -> pa.Array:
    """Plain numbers if there is one output, otherwise lists."""
    flat = pa.array(scores.reshape(-1), pa.float32())
    return flat if scores.shape[1] == 1 else pa.FixedSizeListArray.from_arrays(flat, scores.shape[1])


def _scores(table: pa.Table) -> np.ndarray:
    column = table["score"].chunk(0)
    return (column if pa.types.is_float32(column.type) else column.flatten()).to_numpy()
