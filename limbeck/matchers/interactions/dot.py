"""One vector per text, and their inner product (Defense Eq. 2) or cosine."""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Interaction(nn.Module, ABC):
    """Scores encoded queries against encoded documents."""

    @abstractmethod
    def forward(self, queries: Tensor, documents: Tensor, lists: Tensor | None) -> Tensor:
        """Scores [B, K] of each query's list, or [B, P] of all pairs where `lists` is None."""


class Dot(Interaction):
    """s(q, d) = <q, d>."""

    def forward(self, queries: Tensor, documents: Tensor, lists: Tensor | None) -> Tensor:
        # queries [B, dim], documents [P, dim]; in float32 even under autocast: bfloat16 has steps of 1/8 at 20
        with torch.autocast(queries.device.type, enabled=False):
            queries, documents = queries.float(), documents.float()
            if lists is None:
                return queries @ documents.T
            return (queries.unsqueeze(1) * documents[lists]).sum(dim=-1)


class Cosine(Dot):
    """s(q, d) = <q, d> / (|q| |d|): a score in [-1, 1], so objectives need a temperature or a learnt scale."""

    def forward(self, queries: Tensor, documents: Tensor, lists: Tensor | None) -> Tensor:
        return super().forward(F.normalize(queries, dim=-1), F.normalize(documents, dim=-1), lists)
