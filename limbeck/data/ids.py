"""Find a row by its id without keeping a Python string for each row.

The index of n ids is one array [2, n] of uint64: their hashes in ascending order, and the row of each. It is built
block by block, can be memory-mapped, and takes 16 bytes per id. A hash only finds a candidate; the ids are always
compared, so hash collisions cost time but never give a wrong row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa

_OFFSET, _PRIME = 0xCBF29CE484222325, 0x100000001B3  # FNV-1a, 64 bits
_MASK = (1 << 64) - 1


def hash_id(text: str) -> int:
    """FNV-1a of one id; equal to what `hash_ids` gives."""
    value = _OFFSET
    for byte in text.encode("utf-8"):
        value = ((value ^ byte) * _PRIME) & _MASK
    return value


def hash_ids(ids: pa.LargeStringArray) -> np.ndarray:
    """FNV-1a of many ids, one byte position at a time over all of them: [n] uint64."""
    hashes = np.full(len(ids), _OFFSET, dtype=np.uint64)
    if len(ids) == 0:
        return hashes
    _, offset_buffer, byte_buffer = ids.buffers()
    offsets = np.frombuffer(offset_buffer, dtype=np.int64)[ids.offset : ids.offset + len(ids) + 1]
    data = np.frombuffer(byte_buffer, dtype=np.uint8) if byte_buffer is not None else np.empty(0, np.uint8)
    starts, lengths = offsets[:-1], np.diff(offsets)
    active = np.flatnonzero(lengths > 0)
    prime = np.uint64(_PRIME)
    position = 0
    while len(active):
        hashes[active] = (hashes[active] ^ data[starts[active] + position]) * prime
        position += 1
        active = active[lengths[active] > position]
    return hashes


def build_index(hashes: Sequence[np.ndarray]) -> np.ndarray:
    """The index over blocks of hashes in row order: [2, n] uint64."""
    flat = np.concatenate(hashes) if hashes else np.empty(0, np.uint64)
    order = np.argsort(flat, kind="stable")
    return np.stack([flat[order], order.astype(np.uint64)])


def first_duplicate(index: np.ndarray, id_at: Callable[[int], str]) -> int | None:
    """The first row that repeats the id of an earlier row, or None."""
    hashes, rows = index
    same = np.flatnonzero(hashes[1:] == hashes[:-1]) + 1
    for place in same[np.argsort(rows[same], kind="stable")]:
        earlier = place - 1
        text = id_at(int(rows[place]))
        while earlier >= 0 and hashes[earlier] == hashes[place]:
            if id_at(int(rows[earlier])) == text:
                return int(rows[place])
            earlier -= 1
    return None


def find_row(index: np.ndarray, text: str, id_at: Callable[[int], str]) -> int:
    """The row of one id, or -1."""
    hashes, rows = index
    wanted = np.uint64(hash_id(text))
    place = int(hashes.searchsorted(wanted))
    while place < len(hashes) and hashes[place] == wanted:
        row = int(rows[place])
        if id_at(row) == text:
            return row
        place += 1
    return -1


def candidate_rows(index: np.ndarray, ids: pa.LargeStringArray) -> np.ndarray:
    """For each id, the first row with its hash, or -1: [n] int64. The caller has to compare the ids."""
    hashes, rows = index
    wanted = hash_ids(ids)
    if len(hashes) == 0:
        return np.full(len(wanted), -1, dtype=np.int64)
    places = np.minimum(np.searchsorted(hashes, wanted), len(hashes) - 1)
    return np.where(hashes[places] == wanted, rows[places].astype(np.int64), -1)
