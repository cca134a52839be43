"""VIRT: each text keeps all its token vectors, and texts are compared by attention at the end (VIRT Sec. 3.3)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Literal

from pydantic import Field
from sentence_transformers.base.modules import Transformer
from torch import Tensor

from limbeck.matchers.config import architecture
from limbeck.matchers.encoding import Encoded, Encoding, TokenVectors
from limbeck.matchers.head_matcher import ClassifierConfig, HeadConfig, HeadMatcher, pool
from limbeck.matchers.interactions import Fusion, Interaction, VirtInteraction


class VirtConfig(ClassifierConfig):
    """All token vectors of each text, attention between them, and a fusion of what it finds."""

    kind: Literal["virt"] = "virt"
    adapted: bool = Field(
        True,
        description="attention between the texts' tokens; false is the paper's model without adapted interaction: it "
        "keeps the mean of the tokens and fuses the means in the same way",
    )


@architecture
class Virt(HeadMatcher):
    """The VIRT-adapted interaction over any encoder (VIRT Eq. 5 and 6).

    The distillation of attention maps is a separate objective, which also works for other two-tower matchers.
    """

    kind = "virt"
    config_type: ClassVar[type[HeadConfig]] = VirtConfig
    outputs_are_the_encoders: ClassVar[bool] = False  # all tokens of all training texts are too much to store

    def __init__(self, config: Any, encoders: Sequence[Transformer], head: Interaction | None = None) -> None:
        super().__init__(config, encoders, head)
        if head is None and config.adapted:
            self.head = VirtInteraction(self.width, config.outputs, config.dropout)
        elif head is None:
            self.head = Fusion(self.width, "virt", "residual", config.outputs, config.dropout)

    def encoding(self, position: int) -> Encoding:
        return Encoding(self.width, "ragged" if self.settings.adapted else None)

    def _select(self, states: Tensor, mask: Tensor, position: int) -> Encoded:
        return TokenVectors(states, mask) if self.settings.adapted else pool(states, mask, "mean")
