"""Siamese: each text keeps one vector, and a small network reads the two side by side (VIRT Sec. 4.2)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Literal

from pydantic import Field
from sentence_transformers.base.modules import Transformer
from torch import Tensor

from limbeck.matchers.config import architecture
from limbeck.matchers.encoding import Encoded, Encoding
from limbeck.matchers.head_matcher import ClassifierConfig, HeadConfig, HeadMatcher, pool
from limbeck.matchers.interactions import Fusion, Interaction
from limbeck.matchers.interactions.fusion import FusionName


class FusionConfig(ClassifierConfig):
    """The keys of matchers that fuse one vector of each text."""

    pooling: Literal["mean", "cls"] = Field("mean", description="how token states become one vector")
    classifier: Literal["mlp", "linear"] = Field(
        "mlp",
        description="what reads the fused vectors: mlp has one hidden layer, 4 times as wide as a vector; linear has "
        "none and cannot compare the texts",
    )


class SiameseConfig(FusionConfig):
    """One vector of each text; a network reads (u, v)."""

    kind: Literal["siamese"] = "siamese"


@architecture
class Siamese(HeadMatcher):
    """Scores from r = (u, v), where u and v are the means of the texts' token states, or their [CLS] states.

    About its baselines, the paper only says that vectors are concatenated "to give final predictions", and that its own
    Eq. 6, MLP(MLP(r) + r), is much better. So the baselines are simpler: here an MLP with one hidden layer, or none
    with `classifier: linear`. A linear classifier of (u, v) gives f(x) + g(y): it reads each text, but cannot compare
    them.
    """

    kind = "siamese"
    config_type: ClassVar[type[HeadConfig]] = SiameseConfig
    of_the_head: ClassVar[frozenset[str]] = frozenset({"kind", "dropout", "outputs", "classifier"})
    fusion: ClassVar[FusionName] = "siamese"

    def __init__(self, config: Any, encoders: Sequence[Transformer], head: Interaction | None = None) -> None:
        super().__init__(config, encoders, head)
        if head is None:
            self.head = Fusion(self.width, self.fusion, config.classifier, config.outputs, config.dropout)

    def encoding(self, position: int) -> Encoding:
        return Encoding(self.width)

    def _select(self, states: Tensor, mask: Tensor, position: int) -> Encoded:
        return pool(states, mask, self.settings.pooling)
