"""A different number of vectors for each text, such as the token vectors of ColBERT."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Ragged:
    """The vectors of all texts, one text after the other."""

    vectors: np.ndarray  # [total, dim] float32
    lengths: np.ndarray  # [texts] int64: number of vectors of each text

    @classmethod
    def from_list(cls, parts: Sequence[np.ndarray]) -> Ragged:
        """Join one array [vectors, dim] for each text."""
        lengths = np.array([len(part) for part in parts], dtype=np.int64)
        dim = parts[0].shape[-1] if parts else 0
        vectors = np.concatenate(parts) if parts else np.empty((0, dim), dtype=np.float32)
        return cls(np.asarray(vectors, dtype=np.float32), lengths)

    @classmethod
    def join(cls, parts: Sequence[Ragged]) -> Ragged:
        """Join several into one, in order."""
        return cls(np.concatenate([part.vectors for part in parts]), np.concatenate([part.lengths for part in parts]))

    @property
    def offsets(self) -> np.ndarray:
        """The start of each text, and the end of the last one: [texts + 1] int64."""
        return np.concatenate([[0], np.cumsum(self.lengths)]).astype(np.int64)

    def __len__(self) -> int:
        return len(self.lengths)

    def __iter__(self) -> Iterator[np.ndarray]:
        return iter(np.split(self.vectors, np.cumsum(self.lengths)[:-1])) if len(self) else iter(())

    def take(self, texts: np.ndarray) -> Ragged:
        """Some of the texts, in the given order."""
        lengths = self.lengths[texts]
        return Ragged(self.vectors[spans(self.offsets[texts], lengths)], lengths)

    def padded(self) -> tuple[np.ndarray, np.ndarray]:
        """Vectors [texts, longest, dim], padded with zeros, and the mask [texts, longest]."""
        longest = int(self.lengths.max(initial=0))
        mask = np.arange(longest) < self.lengths[:, None]
        padded = np.zeros((len(self), longest, self.vectors.shape[1]), dtype=np.float32)
        padded[mask] = self.vectors
        return padded, mask


def spans(starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """The indices start, start + 1, ... of all spans in one array, without a loop."""
    before = np.cumsum(lengths) - lengths
    return np.repeat(starts - before, lengths) + np.arange(int(lengths.sum()))
