"""VIRT's adapted interaction: each text attends to the other (VIRT Sec. 3.3)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from limbeck.matchers.encoding import Encoded, TokenVectors
from limbeck.matchers.interactions.base import Interaction, Prepared, interaction, without_padding
from limbeck.matchers.interactions.fusion import FusedPair, fuse


@interaction
class VirtInteraction(FusedPair):
    """u = mean_i softmax_j(<x_i, y_j> / sqrt(d)) y_j, v the same from y to x, and their fusion (VIRT Eq. 5, 6).

    x_i and y_j are the last layer's outputs and d is their size. All tokens of a text are used, including special ones:
    H in Eq. 5 is the encoder's whole output. So an empty text still has vectors. Padding gets no weight and is not
    counted in a mean.

    The mean over i does not depend on y_j. So u is sum_j w_j y_j with w_j the mean over i of the attention to y_j, and
    the matrix of attended vectors [m, d] is never formed.
    """

    name = "virt"

    def __init__(self, dim: int, outputs: int, dropout: float) -> None:
        super().__init__(dim, "virt", "residual", outputs, dropout)

    @property
    def arguments(self) -> dict[str, Any]:
        return {"dim": self.dim, "outputs": self.outputs, "dropout": self.rate}

    def prepare(self, encoded: Encoded, position: int) -> Prepared:
        assert isinstance(encoded, TokenVectors)
        return encoded.vectors.float() * encoded.mask.unsqueeze(-1), encoded.mask

    def score(self, texts: Sequence[Prepared]) -> Tensor:
        return self.classifier(fuse(*self.attended(texts), "virt"))

    def attended(self, texts: Sequence[Prepared]) -> tuple[Tensor, Tensor]:
        """u and v [pairs, dim]."""
        (left, left_mask), (right, right_mask) = map(without_padding, texts)
        logits = left @ right.transpose(1, 2) * self.dim**-0.5  # [pairs, left tokens, right tokens]
        to_right = _mean_attention(logits, left_mask, right_mask)
        to_left = _mean_attention(logits.transpose(1, 2), right_mask, left_mask)
        return _weighted(to_right, right), _weighted(to_left, left)

    def folded(self) -> Interaction:
        from limbeck.matchers.interactions.folded_fusion import FoldedVirt

        return FoldedVirt(self)


def _mean_attention(logits: Tensor, asking: Tensor, asked: Tensor) -> Tensor:
    """The attention to each token of one text, averaged over the tokens of the other: [pairs, attended tokens]."""
    weights = logits.masked_fill(~asked.unsqueeze(1), torch.finfo(logits.dtype).min).softmax(dim=-1)
    counted = asking.unsqueeze(-1).to(weights.dtype)
    return (weights * counted).sum(dim=1) / counted.sum(dim=1).clamp(min=1)


def _weighted(weights: Tensor, vectors: Tensor) -> Tensor:
    """sum_j w_j y_j: [pairs, dim]."""
    return torch.bmm(weights.unsqueeze(1), vectors).squeeze(1)
