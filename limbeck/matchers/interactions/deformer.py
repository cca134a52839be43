"""DeFormer's upper layers: the token states of both texts in one sequence (Cao et al. 2020; VIRT Sec. 4.2)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from limbeck.matchers.encoding import Encoded, TokenVectors
from limbeck.matchers.interactions.base import Interaction, Prepared, interaction, without_padding
from limbeck.matchers.interactions.layer import HeadLayer


@interaction
class JointLayers(Interaction):
    """BERT layers over the states of both texts, the mean of their outputs, and a linear classifier.

    The layers are written in plain torch, so a worker needs no model library. Queries, keys and values of the first
    layer depend on a single text and are computed once per text.
    """

    name = "joint_layers"

    def __init__(
        self,
        dim: int,
        layers: int,
        heads: int,
        intermediate: int,
        outputs: int,
        dropout: float = 0.0,
        inner_dropout: float = 0.0,
        attention_dropout: float = 0.0,
        eps: float = 1e-12,
    ) -> None:
        super().__init__()
        self.outputs = outputs
        self._arguments = {
            "dim": dim,
            "layers": layers,
            "heads": heads,
            "intermediate": intermediate,
            "outputs": outputs,
            "dropout": dropout,
            "inner_dropout": inner_dropout,
            "attention_dropout": attention_dropout,
            "eps": eps,
        }
        self.layers = nn.ModuleList(
            HeadLayer(dim, heads, intermediate, inner_dropout, attention_dropout, eps) for _ in range(layers)
        )
        self.dropout = nn.Dropout(dropout)
        self.output = nn.Linear(dim, outputs)

    @property
    def arguments(self) -> dict[str, Any]:
        return self._arguments

    def prepare(self, encoded: Encoded, position: int) -> Prepared:
        """States [texts, tokens, dim], the first layer's queries, keys and values [texts, tokens, 3 dim], the mask."""
        assert isinstance(encoded, TokenVectors)
        first: HeadLayer = self.layers[0]  # type: ignore[assignment]
        states = encoded.vectors.float()
        return states, first.attend(states), encoded.mask

    def score(self, texts: Sequence[Prepared]) -> Tensor:
        shorter = [without_padding(text) for text in texts]
        states, projected, mask = (torch.cat(parts, dim=1) for parts in zip(*shorter, strict=True))
        first: HeadLayer = self.layers[0]  # type: ignore[assignment]
        queries, keys, values = projected.chunk(3, dim=-1)
        states = first.attended(states, queries, keys, values, mask)
        for layer in self.layers[1:]:
            states = layer(states, mask)
        counted = mask.unsqueeze(-1).to(states.dtype)
        mean = (states * counted).sum(dim=1) / counted.sum(dim=1).clamp(min=1)
        return self.output(self.dropout(mean))
