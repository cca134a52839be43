"""Poly-encoder: several codes of one text, one vector of the other, attention, a dot product (Humeau et al. 2020)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from limbeck.matchers.encoding import Encoded, TokenVectors
from limbeck.matchers.interactions.base import Interaction, Prepared, interaction


@interaction
class PolyAttention(Interaction):
    """s = a <y, c> + b, y = sum_i softmax_i(<y_i, c>) y_i: the single vector c attends to the codes y_1 ... y_m.

    Humeau et al. have no a and b, because they only rank; here they are learnt, so that s can be a probability's logit.
    """

    name = "poly"

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.dim = dim
        self.scale = nn.Parameter(torch.tensor(dim**-0.5))
        self.offset = nn.Parameter(torch.tensor(0.0))

    @property
    def arguments(self) -> dict[str, Any]:
        return {"dim": self.dim}

    def prepare(self, encoded: Encoded, position: int) -> Prepared:
        assert isinstance(encoded, TokenVectors)
        return (encoded.vectors,)

    def score(self, texts: Sequence[Prepared]) -> Tensor:
        """The text with more than one slot has the codes."""
        (left,), (right,) = texts
        codes, vector = (left, right) if right.shape[1] == 1 else (right, left)
        logits = codes @ vector.transpose(1, 2)  # [pairs, codes, 1]
        found = (logits.softmax(dim=1) * logits).sum(dim=1)  # <sum_i w_i y_i, c> = sum_i w_i <y_i, c>
        return self.scale * found + self.offset


class Codes(nn.Module):
    """Learnt queries that each pool a text: y_i = sum_j softmax_j(<code_i, h_j>) h_j."""

    def __init__(self, count: int, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(count, width) * width**-0.5)

    def forward(self, states: Tensor, mask: Tensor) -> Tensor:
        """[n, tokens, width] and its mask to [n, codes, width]."""
        logits = states @ self.weight.T  # [n, tokens, codes]
        lowest = torch.finfo(logits.dtype).min
        weights = logits.masked_fill(~mask.unsqueeze(-1), lowest).softmax(dim=1)
        return weights.transpose(1, 2) @ states
