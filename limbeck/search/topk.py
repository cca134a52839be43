"""The k best of many scores, independent of the blocks: equal scores are ordered by row.

A score and its row are packed into one 64-bit key with the same order. No two keys are equal, so the k greatest are
unique, and the best of several blocks can be found from the best of each.
"""

from __future__ import annotations

import torch
from torch import Tensor

MOST_ROWS = 2**32


def keys(scores: Tensor, first_row: int = 0) -> Tensor:
    """Pack scores [..., n] of rows from `first_row` on: greater keys for greater scores, then for earlier rows."""
    bits = (scores.to(torch.float32) + 0.0).view(torch.int32)  # + 0.0: -0.0 and 0.0 are equal
    rows = torch.arange(first_row, first_row + scores.shape[-1])
    return _ordered(bits).to(torch.int64).bitwise_left_shift_(32).bitwise_or_(MOST_ROWS - 1 - rows)


def best(packed: Tensor, k: int) -> Tensor:
    """The k greatest keys of [..., n], greatest first; all of them if there are fewer."""
    return torch.topk(packed, min(k, packed.shape[-1]), dim=-1).values


def unpack(packed: Tensor) -> tuple[Tensor, Tensor]:
    """The scores (float32) and rows (int64) of keys."""
    bits = _ordered((packed >> 32).to(torch.int32))
    return bits.view(torch.float32), MOST_ROWS - 1 - (packed & (MOST_ROWS - 1))


def _ordered(bits: Tensor) -> Tensor:
    """Map a float's bits to an integer with the same order, and back: the function is its own inverse."""
    return bits ^ ((bits >> 31) & 0x7FFFFFFF)
