"""Poly-encoder: several codes of one text, one vector of the other, attention, a dot product (Humeau et al. 2020)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from limbeck.matchers.encoding import Encoded, TokenVectors
from limbeck.matchers.interactions.base import Interaction, Prepared, interaction
from limbeck.matchers.interactions.fusion import PARTS, WIDER, Classifier, fuse


@interaction
class PolyAttention(Interaction):
    """s = a <y, c> + b, y = sum_i softmax_i(<y_i, c>) y_i: the single vector c attends to the codes y_1 ... y_m.

    Humeau et al. have no a and b, because they only rank; here they are learnt, so that s can be a probability's logit.
    With several outputs, a small network reads the two vectors, in the order of the texts, as Siamese's does.
    """

    name = "poly"

    def __init__(self, dim: int, outputs: int = 1, dropout: float = 0.0) -> None:
        super().__init__()
        self.dim, self.outputs, self.rate = dim, outputs, dropout
        if outputs == 1:
            self.scale = nn.Parameter(torch.tensor(dim**-0.5))
            self.offset = nn.Parameter(torch.tensor(0.0))
            self.dropout = nn.Dropout(dropout)
        else:
            self.classifier = Classifier(PARTS["siamese"] * dim, WIDER * dim, outputs, "mlp", dropout)

    @property
    def arguments(self) -> dict[str, Any]:
        return {"dim": self.dim, "outputs": self.outputs, "dropout": self.rate}

    def prepare(self, encoded: Encoded, position: int) -> Prepared:
        assert isinstance(encoded, TokenVectors)
        return (encoded.vectors,)

    def score(self, texts: Sequence[Prepared]) -> Tensor:
        """The text with more than one slot has the codes."""
        (left,), (right,) = texts
        first = right.shape[1] == 1  # the codes are of the first text
        codes, vector = (left, right) if first else (right, left)
        logits = codes @ vector.transpose(1, 2)  # [pairs, codes, 1]
        gathered = (logits.softmax(dim=1).transpose(1, 2) @ codes).squeeze(1)  # [pairs, dim]
        single = vector.squeeze(1)
        if self.outputs == 1:
            return self.scale * (self.dropout(gathered) * single).sum(dim=1, keepdim=True) + self.offset
        return self.classifier(fuse(gathered, single, "siamese") if first else fuse(single, gathered, "siamese"))


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
