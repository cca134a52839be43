"""Find a row by the content of its text: 16-byte digests, sorted, searched with numpy.

A Python dictionary of 10 million texts would take more than a gigabyte. A sorted index takes 24 bytes per text, is a
memory-mapped file, and finds 10,000 texts in a few milliseconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import blake2b

import numpy as np

DIGEST_BYTES = 16


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")  # texts from damaged sources may contain lone surrogates


def _table(digests: Iterable[bytes]) -> np.ndarray:
    return np.frombuffer(b"".join(digests), dtype=np.uint8).reshape(-1, DIGEST_BYTES)


def text_digests(texts: Iterable[str]) -> np.ndarray:
    """The BLAKE2b-128 digest of each text: [texts, 16] uint8."""
    return _table(blake2b(_bytes(text), digest_size=DIGEST_BYTES).digest() for text in texts)


def pair_digests(query_ids: Sequence[str], document_ids: Sequence[str]) -> np.ndarray:
    """The digest of each (query id, document id): [pairs, 16] uint8; consecutive pairs of a query hash its id once."""

    def each() -> Iterable[bytes]:
        last, started = None, blake2b(digest_size=DIGEST_BYTES)
        for query_id, document_id in zip(query_ids, document_ids, strict=True):
            if query_id != last:
                query = _bytes(query_id)
                started = blake2b(len(query).to_bytes(8, "little") + query, digest_size=DIGEST_BYTES)
                last = query_id
            pair = started.copy()
            pair.update(_bytes(document_id))
            yield pair.digest()

    return _table(each())


def _words(digests: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(digests).view("<u8")  # [n, 2]: compare two integers instead of 16 bytes


def sorted_index(digests: np.ndarray) -> np.ndarray:
    """[3, n] uint64: both halves of the digests, in ascending order, and the row of each."""
    words = _words(digests)
    order = np.lexsort((words[:, 1], words[:, 0]))
    return np.ascontiguousarray(np.stack([words[order, 0], words[order, 1], order.astype("<u8")]))


def digests_in_row_order(index: np.ndarray) -> np.ndarray:
    """The digests [n, 16] that `sorted_index` was made from."""
    words = np.empty((index.shape[1], 2), dtype="<u8")
    words[index[2].astype(np.int64)] = index[:2].T
    return words.view(np.uint8)


def find(index: np.ndarray, digests: np.ndarray) -> np.ndarray:
    """The row of each digest, -1 if it is not in the index: [n] int64."""
    rows = np.full(len(digests), -1, dtype=np.int64)
    if not index.shape[1] or not len(digests):
        return rows
    words = _words(digests)
    at = np.searchsorted(index[0], words[:, 0])
    open_ones = np.flatnonzero(at < index.shape[1])
    while len(open_ones):  # one pass, except for digests that share their first half
        place = at[open_ones]
        alike = index[0][place] == words[open_ones, 0]
        open_ones, place = open_ones[alike], place[alike]
        found = index[1][place] == words[open_ones, 1]
        rows[open_ones[found]] = index[2][place[found]].astype(np.int64)
        open_ones = open_ones[~found]
        at[open_ones] += 1
        open_ones = open_ones[at[open_ones] < index.shape[1]]
    return rows


def locate(indexes: Sequence[np.ndarray], digests: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """For each digest, the index that has it, and its row there; both are -1 if none has it: [n] int64 each."""
    owners, rows = np.full((2, len(digests)), -1, dtype=np.int64)
    wanted = np.argsort(_words(digests)[:, 0])  # sorted, so that the searches access memory in order
    for owner, index in enumerate(indexes):
        found = find(index, digests[wanted])
        here = found >= 0
        owners[wanted[here]], rows[wanted[here]] = owner, found[here]
        wanted = wanted[~here]
    return owners, rows


def first_occurrences(digests: np.ndarray) -> np.ndarray:
    """The first position of each distinct digest, ascending: [distinct] int64."""
    words = _words(digests)
    order = np.lexsort((words[:, 1], words[:, 0]))  # stable, so that the first of equals comes first
    sorted_words = words[order]
    is_first = np.ones(len(order), dtype=bool)
    is_first[1:] = (sorted_words[1:] != sorted_words[:-1]).any(axis=1)
    return np.sort(order[is_first])
