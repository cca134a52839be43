"""The poly-encoder: DiPair's peer for short text (DiPair App. C; Humeau et al. 2020)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from sentence_transformers.base.modules import Transformer
from torch import Tensor

from limbeck.matchers.dipair import DiPair
from limbeck.matchers.interactions.poly import Codes
from limbeck.matchers.spec import MatcherSpec


class PolyEncoder(DiPair):
    """One text keeps m vectors that learnt codes gather from its tokens, the other one vector: its [CLS], or its mean.

    `tokens: [16, 1]` has 16 codes on the first text, `[1, 16]` on the second. There is no projection, as there.
    """

    kind = "poly_encoder"
    outputs_are_the_encoders: ClassVar[bool] = (
        False  # codes are trained too, so what is kept changes while the encoder is frozen
    )

    def __init__(self, spec: MatcherSpec, encoders: Sequence[Transformer]) -> None:
        super().__init__(spec, encoders)
        self.codes = Codes(max(spec.tokens), self.width)

    def _select(self, states: Tensor, mask: Tensor, position: int) -> Tensor:
        if self.spec.tokens[position] > 1:
            return self.codes(states, mask)
        if self.spec.pooling == "cls":
            return super()._select(states, mask, position)
        counts = mask.unsqueeze(-1).to(states.dtype)
        return (states * counts).sum(dim=1, keepdim=True) / counts.sum(dim=1, keepdim=True).clamp(min=1)
