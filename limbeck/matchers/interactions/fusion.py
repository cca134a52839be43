"""Vectors u of the first text and v of the second, concatenated with comparisons of both, into a small network.

The fusions that VIRT is compared with, and its own without attention (VIRT Eq. 6, Sec. 4.2 and 4.5.1):

    siamese      r = (u, v)
    sentence_t5  r = (u, v, u - v)
    virt         r = (u, v, u - v, max(u, v))
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from limbeck.matchers.encoding import Encoded
from limbeck.matchers.interactions.base import Interaction, Prepared, interaction

FusionName = Literal["siamese", "sentence_t5", "virt"]
ClassifierName = Literal["linear", "mlp", "residual"]
PARTS: dict[str, int] = {"siamese": 2, "sentence_t5": 3, "virt": 4}  # vectors in r
WIDER = 4  # the networks' inner width, relative to the vector size


def fuse(left: Tensor, right: Tensor, fusion: FusionName) -> Tensor:
    """r [pairs, parts * dim] of the vectors u and v [pairs, dim] of each pair."""
    parts = [left, right, left - right, torch.maximum(left, right)] if fusion == "virt" else [left, right]
    return torch.cat([*parts, left - right] if fusion == "sentence_t5" else parts, dim=-1)


class Classifier(nn.Module):
    """Scores from r: `linear` W r + b, `mlp` MLP(r), `residual` MLP(MLP(r) + r) (VIRT Eq. 6).

    An MLP has one hidden layer with GELU, four times as wide as the vectors; the paper only says "MLP". With
    `linear`, a score is a sum of one number for each text, so it cannot compare them.
    """

    def __init__(self, size: int, hidden: int, outputs: int, kind: ClassifierName, dropout: float) -> None:
        super().__init__()
        self.kind = kind
        self.dropout = nn.Dropout(dropout)
        if kind == "residual":
            self.inner, self.back = nn.Linear(size, hidden), nn.Linear(hidden, size)
        if kind != "linear":
            self.hidden = nn.Linear(size, hidden)
        self.output = nn.Linear(size if kind == "linear" else hidden, outputs)

    def forward(self, fused: Tensor) -> Tensor:
        """[pairs, size] to [pairs, outputs]."""
        fused = self.dropout(fused)
        if self.kind == "residual":
            fused = fused + self.back(self.dropout(F.gelu(self.inner(fused))))
        return self.output(fused if self.kind == "linear" else self.dropout(F.gelu(self.hidden(fused))))


class FusedPair(Interaction):
    """The base of interactions that end in a fusion of two vectors and a classifier."""

    def __init__(self, dim: int, fusion: FusionName, classifier: ClassifierName, outputs: int, dropout: float) -> None:
        super().__init__()
        self.dim, self.fusion, self.outputs, self.rate = dim, fusion, outputs, dropout
        self.classifier = Classifier(PARTS[fusion] * dim, WIDER * dim, outputs, classifier, dropout)


@interaction
class Fusion(FusedPair):
    """Each text has one vector, and pairs of them are fused."""

    name = "fusion"

    @property
    def arguments(self) -> dict[str, Any]:
        return {
            "dim": self.dim,
            "fusion": self.fusion,
            "classifier": self.classifier.kind,
            "outputs": self.outputs,
            "dropout": self.rate,
        }

    def prepare(self, encoded: Encoded, position: int) -> Prepared:
        assert isinstance(encoded, Tensor)
        return (encoded.float(),)

    def score(self, texts: Sequence[Prepared]) -> Tensor:
        (left,), (right,) = texts
        return self.classifier(fuse(left, right, self.fusion))

    def folded(self) -> Interaction:
        from limbeck.matchers.interactions.folded_fusion import FoldedFusion

        return FoldedFusion(self)
