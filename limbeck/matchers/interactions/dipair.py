"""DiPair's heads: a small network over the few token vectors that each text keeps (DiPair Sec. 3).

A head reads n texts, each as [B, slots, dim] and a mask of the slots that contain a token. `folded` gives the same
scores for inference with minimal work per pair.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from limbeck.matchers.encoding import Encoded, TokenVectors
from limbeck.matchers.interactions.base import Interaction, Prepared, interaction
from limbeck.matchers.interactions.layer import HeadLayer


@interaction
class TransformerHead(Interaction):
    """DiPair-TSF: a few transformer layers over all texts' tokens; the first output represents the pair.

    Layers are BERT's (norm after the sum, GELU), with one attention head by default. The paper's head starts at random
    and learns from tens of millions of pairs that it has to compare texts. This one compares from the start: the first
    layer's queries and keys are the vectors themselves, so that a token attends to similar tokens.

    With `cosine`, the score is DE-Cos' plus the output of the layers, which starts at 0.
    """

    name = "transformer"

    def __init__(
        self,
        slots: Sequence[int],
        dim: int,
        layers: int,
        heads: int,
        intermediate: int,
        outputs: int,
        dropout: float,
        cosine: bool = False,
    ) -> None:
        super().__init__()
        self.outputs = outputs
        self._arguments = {
            "slots": list(slots),
            "dim": dim,
            "layers": layers,
            "heads": heads,
            "intermediate": intermediate,
            "outputs": outputs,
            "dropout": dropout,
            "cosine": cosine,
        }
        self.positions = nn.ModuleList(nn.Embedding(count, dim) for count in slots)
        self.segments = nn.Embedding(len(slots), dim)
        self.norm, self.dropout = nn.LayerNorm(dim), nn.Dropout(dropout)
        self.layers = nn.ModuleList(HeadLayer(dim, heads, intermediate, dropout) for _ in range(layers))
        self.output = nn.Linear(dim, outputs)
        for embedding in (*self.positions, self.segments):
            nn.init.normal_(embedding.weight, std=0.02)
        self.layers[0].compare()  # type: ignore[operator]
        self.cosine = CosineHead() if cosine else None
        if cosine:
            nn.init.zeros_(self.output.weight)
            nn.init.zeros_(self.output.bias)

    def inputs(self, vectors: Tensor, text: int) -> Tensor:
        """The first layer's input for one text's vectors [B, slots, dim]: with position, segment, norm."""
        positions: nn.Embedding = self.positions[text]  # type: ignore[assignment]
        return self.norm(vectors + positions.weight + self.segments.weight[text])

    @property
    def arguments(self) -> dict[str, Any]:
        return self._arguments

    def prepare(self, encoded: Encoded, position: int) -> Prepared:
        """The first layer's input and its mask; with `cosine`, the first tokens' unit vectors too."""
        assert isinstance(encoded, TokenVectors)
        states = self.inputs(encoded.vectors, position)
        return (states, encoded.mask) if self.cosine is None else (states, encoded.mask, _first_unit(encoded))

    def score(self, texts: Sequence[Prepared]) -> Tensor:
        states = self.dropout(torch.cat([text[0] for text in texts], dim=1))
        mask = torch.cat([text[1] for text in texts], dim=1)  # [pairs, all slots]
        for layer in self.layers[:-1]:
            states = layer(states, mask)
        scores = self.output(self.layers[-1](states, mask, first=True)[:, 0])
        return scores if self.cosine is None else scores + self.cosine.after(texts[0][2], texts[1][2])

    def folded(self) -> Interaction:
        from limbeck.matchers.interactions.folded import FoldedTransformer

        return FoldedTransformer(self)


@interaction
class FeedForwardHead(Interaction):
    """DiPair-FFNN: the concatenated vectors into hidden layers; with one slot per text it is the paper's DE-FFNN."""

    name = "ffnn"

    def __init__(self, slots: Sequence[int], dim: int, layers: int, hidden: int, outputs: int, dropout: float) -> None:
        super().__init__()
        self.outputs = outputs
        self._arguments = {
            "slots": list(slots),
            "dim": dim,
            "layers": layers,
            "hidden": hidden,
            "outputs": outputs,
            "dropout": dropout,
        }
        self.first = nn.Linear(sum(slots) * dim, hidden)
        self.further = nn.ModuleList(nn.Linear(hidden, hidden) for _ in range(layers - 1))
        self.output = nn.Linear(hidden, outputs)
        self.dropout = nn.Dropout(dropout)

    @property
    def arguments(self) -> dict[str, Any]:
        return self._arguments

    def prepare(self, encoded: Encoded, position: int) -> Prepared:
        """The concatenated vectors; a slot without a token is zeros."""
        assert isinstance(encoded, TokenVectors)
        return ((encoded.vectors * encoded.mask.unsqueeze(-1)).flatten(1),)

    def score(self, texts: Sequence[Prepared]) -> Tensor:
        return self.after(self.first(self.dropout(torch.cat([text[0] for text in texts], dim=1))))

    def folded(self) -> Interaction:
        from limbeck.matchers.interactions.folded import FoldedFeedForward

        return FoldedFeedForward(self)

    def after(self, found: Tensor) -> Tensor:
        """The layers after the first, from its output [B, hidden]."""
        for layer in self.further:
            found = layer(torch.relu(found))
        return self.output(torch.relu(found))


@interaction
class CosineHead(Interaction):
    """DE-Cos: the cosine of two vectors with a learnt factor and offset, so that it can be a logit."""

    name = "scaled_cosine"

    def __init__(self, scale: float = 10.0) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(scale))
        self.offset = nn.Parameter(torch.tensor(-scale / 2))

    def prepare(self, encoded: Encoded, position: int) -> Prepared:
        assert isinstance(encoded, TokenVectors)
        return (_first_unit(encoded),)

    def score(self, texts: Sequence[Prepared]) -> Tensor:
        return self.after(texts[0][0], texts[1][0])

    def after(self, left: Tensor, right: Tensor) -> Tensor:
        """The score of unit vectors [B, dim]."""
        return self.scale * (left * right).sum(dim=-1, keepdim=True) + self.offset


def _first_unit(encoded: TokenVectors) -> Tensor:
    """The first token's vector at unit length: [texts, dim]."""
    return F.normalize(encoded.vectors[:, 0], dim=-1)
