"""The stored form of a text after its tower has read it: one vector, a few, one per token, or nothing.

Code that runs a matcher (stores, re-ranking, latency, `score`, `index`) uses its encoding and its interaction,
never its kind. So a new architecture works in all of them at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from limbeck.stores.encodings import Tokens
from limbeck.stores.ragged import Ragged

Vectors = np.ndarray | Ragged  # encodings of texts as returned by a tower and kept in a store


class TokenVectors(NamedTuple):
    """Several vectors for each text of a batch, and a mask of the valid ones."""

    vectors: Tensor  # [texts, tokens, dim]
    mask: Tensor  # [texts, tokens] bool


Encoded = Tensor | TokenVectors  # input of an interaction: [texts, dim], or tokens


@dataclass(frozen=True)
class Encoding:
    """The shape of a text's encoding."""

    dim: int
    tokens: Tokens = None  # None: one vector; a number: that many slots; "ragged": one per token

    def __str__(self) -> str:
        if self.tokens is None:
            return f"one vector of {self.dim} numbers"
        count = "a vector for each token," if self.tokens == "ragged" else f"{self.tokens} vectors"
        return f"{count} of {self.dim} numbers"


def as_encoded(stored: Vectors, device: torch.device | str = "cpu") -> Encoded:
    """Stored encodings as tensors: [texts, dim], or [texts, tokens, dim] with a mask; empty slots are zeros."""
    if isinstance(stored, Ragged):
        vectors, mask = stored.padded()
        return TokenVectors(torch.from_numpy(vectors).to(device), torch.from_numpy(mask).to(device))
    found = torch.from_numpy(np.ascontiguousarray(stored, dtype=np.float32)).to(device)
    return found if found.dim() == 2 else TokenVectors(found, (found != 0).any(dim=-1))


class InMemory:
    """Encodings of texts that are looked up by row, as in a store."""

    def __init__(self, vectors: Vectors) -> None:
        self.vectors = vectors

    def __len__(self) -> int:
        return len(self.vectors)

    def encodings(self, rows: np.ndarray) -> Vectors:
        return self.vectors.take(rows) if isinstance(self.vectors, Ragged) else self.vectors[rows]
