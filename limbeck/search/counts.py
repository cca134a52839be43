"""How often each word occurs in each document: all that BM25 needs. A change only has to count new documents."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy.sparse

from limbeck.progress import track

_PAIRS = 2**22  # pairs weighted at a time


@dataclass(frozen=True)
class Counts:
    """Pairs of a word and a document that contains it, sorted by word, then by document."""

    starts: np.ndarray  # [words + 1], where the pairs of each word begin
    rows: np.ndarray  # [pairs] int32, documents
    times: np.ndarray  # [pairs], how often
    lengths: np.ndarray  # [documents] int32, number of words

    def weights(self, k1: float, b: float) -> np.ndarray:
        """The contribution of each pair to a score, [pairs] float32: see `limbeck.search.sparse`."""
        documents = len(self.lengths)
        having = np.diff(self.starts)
        idf = np.log(1 + (documents - having + 0.5) / (having + 0.5))
        norm = k1 * (1 - b + b * self.lengths / max(self.lengths.mean(), 1e-9))
        words = np.repeat(np.arange(len(having), dtype=np.int32), having)
        found = np.empty(len(self.rows), dtype=np.float32)
        for start in track(range(0, len(found), _PAIRS), "Weighting words"):
            some = slice(start, start + _PAIRS)
            times = self.times[some].astype(np.float64)
            found[some] = idf[words[some]] * times / (times + norm[self.rows[some]])
        return found

    def without(self, keep: np.ndarray) -> Counts:
        """Only the documents in `keep` [documents] bool, renumbered from 0."""
        kept = keep[self.rows]
        starts = np.append(0, np.cumsum(kept))[self.starts]
        numbers = (np.cumsum(keep) - 1).astype(np.int32)
        return Counts(starts, numbers[self.rows[kept]], self.times[kept], self.lengths[keep])

    def followed_by(self, other: Counts) -> Counts:
        """With the documents of `other` after our own; its words include all of ours, with the same numbers."""
        mine = np.append(self.starts, np.full(len(other.starts) - len(self.starts), self.starts[-1]))
        starts = mine + other.starts
        rows = np.empty(int(starts[-1]), dtype=np.int32)
        times = np.empty(len(rows), dtype=np.result_type(self.times, other.times))
        for part, shift, before in ((self, 0, other.starts[:-1]), (other, len(self.lengths), mine[1:])):
            own = part.starts if part is other else mine
            places = np.arange(len(part.rows)) + np.repeat(before, np.diff(own))
            rows[places], times[places] = part.rows + shift, part.times
        return Counts(starts, rows, times, np.append(self.lengths, other.lengths).astype(np.int32))


def count_words(blocks: Sequence[tuple[np.ndarray, np.ndarray]], vocabulary: int) -> Counts:
    """Count blocks of documents, each given as the words of all its documents in one array, and their lengths."""
    lengths = np.concatenate([*(block for _, block in blocks), np.zeros(0, dtype=np.int64)]).astype(np.int32)
    found: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
    first = 0
    for words, sizes in track(blocks, "Counting words"):
        documents = np.repeat(np.arange(len(sizes), dtype=np.int64), sizes)
        pairs, times = np.unique(documents * vocabulary + words, return_counts=True)
        found.append(((pairs // max(vocabulary, 1) + first).astype(np.int32), (pairs % max(vocabulary, 1)), times))
        first += len(sizes)
    documents, words, times = (np.concatenate(column) for column in zip(*found, strict=True))
    small = np.uint16 if times.max(initial=0) < 2**16 else np.uint32
    matrix = scipy.sparse.coo_matrix((times, (documents, words)), shape=(first, vocabulary)).tocsc()
    return Counts(matrix.indptr.astype(np.int64), matrix.indices, matrix.data.astype(small), lengths)
