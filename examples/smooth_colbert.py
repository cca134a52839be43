"""A custom interaction over stored token vectors, and the architecture that uses it: a ColBERT with a smooth
maximum.

    limbeck --plugin examples/smooth_colbert.py distill examples/smooth_colbert.yaml --out runs/smooth
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import torch
from pydantic import Field
from torch import Tensor

from limbeck.matchers.colbert import ColBERT, ColBERTConfig
from limbeck.matchers.config import architecture
from limbeck.matchers.interactions import Interaction, Prepared, TokenVectors, interaction


@interaction
class SmoothMaxSim(Interaction):
    """s(q, d) = sum_i sum_j a_ij <q_i, d_j> with a_i = softmax_j(sharpness * <q_i, d_j>).

    Every document token gets a gradient. The larger `sharpness`, the nearer to MaxSim.
    """

    name = "smooth_maxsim"

    def __init__(self, sharpness: float = 20.0) -> None:
        super().__init__()
        self.sharpness = sharpness

    @property
    def arguments(self) -> dict[str, Any]:
        return {"sharpness": self.sharpness}

    def prepare(self, encoded: TokenVectors, position: int) -> Prepared:
        return encoded.vectors.float(), encoded.mask

    def score(self, texts: Sequence[Prepared]) -> Tensor:
        (queries, counts), (documents, mask) = texts  # [pairs, tokens, dim], [pairs, tokens]
        similar = queries @ documents.transpose(1, 2)  # [pairs, query tokens, document tokens]
        lowest = torch.finfo(similar.dtype).min
        weights = (self.sharpness * similar).masked_fill(~mask.unsqueeze(1), lowest).softmax(dim=-1)
        return ((weights * similar).sum(dim=-1) * counts).sum(dim=1, keepdim=True)  # [pairs, 1]


class SmoothColBERTConfig(ColBERTConfig):
    """A vector for each token, and a smooth maximum over them."""

    kind: Literal["smooth_colbert"] = "smooth_colbert"
    sharpness: float = Field(20.0, gt=0, description="how near to the maximum: large is MaxSim")


@architecture
class SmoothColBERT(ColBERT):
    """ColBERT's towers with another interaction. ColBERT's code writes and reads the kind and the interaction."""

    kind = "smooth_colbert"
    config_type = SmoothColBERTConfig

    @classmethod
    def make_interaction(cls, config: SmoothColBERTConfig) -> Interaction:
        return SmoothMaxSim(config.sharpness)
