"""The poly-encoder: the closest relative of DiPair for short text (DiPair App. C; Humeau et al. 2020)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Literal

from pydantic import Field, model_validator
from sentence_transformers.base.modules import Transformer
from torch import Tensor

from limbeck.matchers.config import architecture
from limbeck.matchers.dipair import DiPair, SlotsConfig
from limbeck.matchers.encoding import Encoded
from limbeck.matchers.head_matcher import ClassifierConfig, pool
from limbeck.matchers.interactions import Interaction, PolyAttention
from limbeck.matchers.interactions.poly import Codes


class PolyEncoderConfig(SlotsConfig, ClassifierConfig):
    """Several codes of one text, one vector of the other."""

    kind: Literal["poly_encoder"] = "poly_encoder"
    pooling: Literal["mean", "cls"] = Field("mean", description="how the text without codes becomes one vector")
    tokens: tuple[int, ...] = Field((16, 1), description="codes of one text, and one vector of the other")

    @model_validator(mode="after")
    def _one_text_has_codes(self) -> PolyEncoderConfig:
        if len(self.tokens) != 2 or min(self.tokens) != 1 or max(self.tokens) == 1:
            raise ValueError("tokens: a poly_encoder has codes for one text and one vector for the other, e.g. [16, 1]")
        return self


@architecture
class PolyEncoder(DiPair):
    """One text has m vectors that learnt codes gather from its tokens, the other one vector: its [CLS], or its mean.

    `tokens: [16, 1]` has 16 codes on the first text, `[1, 16]` on the second. As in the paper, there is no projection.
    """

    kind = "poly_encoder"
    config_type: ClassVar[type[SlotsConfig]] = PolyEncoderConfig
    outputs_are_the_encoders: ClassVar[bool] = False  # codes are trained too, so the kept vectors change

    def __init__(self, config: Any, encoders: Sequence[Transformer], head: Interaction | None = None) -> None:
        super().__init__(config, encoders, head)
        self.codes = Codes(max(config.tokens), self.width)

    @property
    def _dim(self) -> int | None:
        return None

    def _make_head(self, dim: int) -> Interaction:
        return PolyAttention(dim, self.settings.outputs, self.settings.dropout)

    def _select(self, states: Tensor, mask: Tensor, position: int) -> Encoded:
        if self.settings.tokens[position] > 1:
            return self.codes(states, mask)
        return pool(states, mask, self.settings.pooling).unsqueeze(1)
