"""One vector per text, and their inner product (Defense Eq. 2) or cosine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from limbeck.matchers.encoding import Encoded
from limbeck.matchers.interactions.base import Interaction, Prepared, Search, interaction


@interaction
class Dot(Interaction):
    """s(q, d) = <q, d>."""

    name = "dot"
    search: ClassVar[Search | None] = "inner_product"

    def prepare(self, encoded: Encoded, position: int) -> Prepared:
        assert isinstance(encoded, Tensor)
        return (encoded.float(),)  # even under autocast: bfloat16 has steps of 1/8 at 20

    def score(self, texts: Sequence[Prepared]) -> Tensor:
        (left,), (right,) = texts
        return (left * right).sum(dim=-1, keepdim=True)

    def forward(self, texts: Sequence[Prepared], lists: Tensor | None) -> Tensor:
        """Like in the base class, without a copy of each query for each of its documents."""
        (queries,), (documents,) = texts  # [B, dim], [P, dim]
        with torch.autocast(queries.device.type, enabled=False):
            if lists is None:
                return queries @ documents.T
            return (queries.unsqueeze(1) * documents[lists]).sum(dim=-1)


@interaction
class Cosine(Dot):
    """s(q, d) = <q, d> / (|q| |d|): a score in [-1, 1], so objectives need a temperature or a learnt scale."""

    name = "cosine"

    def prepare(self, encoded: Encoded, position: int) -> Prepared:
        assert isinstance(encoded, Tensor)
        return (F.normalize(encoded, dim=-1).float(),)
