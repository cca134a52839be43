"""The stored form of a text after its tower has read it: one vector, a few, one per token, or nothing.

Code that runs a matcher (stores, re-ranking, latency, `score`, `index`) uses its encoding and its interaction,
never its kind. So a new architecture works in all of them at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from limbeck.stores.encodings import Tokens
from limbeck.stores.ragged import Ragged

Vectors = np.ndarray | Ragged  # encodings of texts as returned by a tower and kept in a store


class TokenVectors(NamedTuple):
    """Several vectors for each text of a batch, and a mask of the valid ones."""

    vectors: Tensor  # [texts, tokens, dim]
    mask: Tensor  # [texts, tokens] bool


Encoded = Tensor | TokenVectors  # input of an interaction: [texts, dim], or tokens
AnyEncoded = TypeVar("AnyEncoded", bound=Tensor | TokenVectors)


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

    def nothing(self) -> Vectors:
        """Encodings of no text, for a list of texts that is empty."""
        if self.tokens == "ragged":
            return Ragged(np.zeros((0, self.dim), np.float32), np.zeros(0, np.int64))
        slots = () if self.tokens is None else (self.tokens,)
        return np.zeros((0, *slots, self.dim), np.float32)


def as_encoded(stored: Vectors, device: torch.device | str = "cpu") -> Encoded:
    """Stored encodings as tensors: [texts, dim], or [texts, tokens, dim] with a mask; empty slots are zeros."""
    if isinstance(stored, Ragged):
        vectors, mask = stored.padded()
        return TokenVectors(torch.from_numpy(vectors).to(device), torch.from_numpy(mask).to(device))
    found = torch.from_numpy(np.ascontiguousarray(stored, dtype=np.float32)).to(device)
    return found if found.dim() == 2 else TokenVectors(found, (found != 0).any(dim=-1))


def as_stored(encoded: Encoded) -> Vectors:
    """Encodings of texts as a store holds them, float32: of token vectors, those that count."""
    if isinstance(encoded, Tensor):
        return encoded.detach().float().cpu().numpy()
    vectors, mask = encoded.vectors.detach().float().cpu(), encoded.mask.cpu()
    return Ragged(vectors[mask].numpy(), mask.sum(dim=1).numpy())


def join_stored(parts: Sequence[Vectors]) -> Vectors:
    """Stored encodings of several lists of texts as one, in their order."""
    ragged = [part for part in parts if isinstance(part, Ragged)]
    return Ragged.join(ragged) if ragged else np.concatenate([part for part in parts if isinstance(part, np.ndarray)])


def take_texts(encoded: AnyEncoded, rows: Tensor) -> AnyEncoded:
    """The encodings of some texts, in the order asked for."""
    if isinstance(encoded, TokenVectors):
        return TokenVectors(encoded.vectors[rows], encoded.mask[rows])  # type: ignore[return-value]
    return encoded[rows]  # type: ignore[return-value]


def join_texts(parts: Sequence[AnyEncoded], width: int | None = None) -> AnyEncoded:
    """Encodings of several lists of texts as one; token vectors get as wide as the longest text, or as `width`."""
    tokens = [part for part in parts if isinstance(part, TokenVectors)]
    if not tokens:
        return torch.cat(list(parts))  # type: ignore[return-value, arg-type]
    widest = width or max(part.mask.shape[1] for part in tokens)
    vectors = [F.pad(part.vectors, (0, 0, 0, widest - part.vectors.shape[1])) for part in tokens]
    masks = [F.pad(part.mask, (0, widest - part.mask.shape[1])) for part in tokens]
    return TokenVectors(torch.cat(vectors), torch.cat(masks))  # type: ignore[return-value]


class InMemory:
    """Encodings of texts that are looked up by row, as in a store."""

    def __init__(self, vectors: Vectors) -> None:
        self.vectors = vectors

    def __len__(self) -> int:
        return len(self.vectors)

    def encodings(self, rows: np.ndarray) -> Vectors:
        return self.vectors.take(rows) if isinstance(self.vectors, Ragged) else self.vectors[rows]
