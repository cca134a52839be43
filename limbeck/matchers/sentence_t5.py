"""Sentence-T5's fusion: a Siamese model that also reads the difference of the two vectors (VIRT Sec. 4.2)."""

from __future__ import annotations

from typing import ClassVar, Literal

from limbeck.matchers.config import architecture
from limbeck.matchers.head_matcher import HeadConfig
from limbeck.matchers.interactions.fusion import FusionName
from limbeck.matchers.siamese import FusionConfig, Siamese


class SentenceT5Config(FusionConfig):
    """One vector of each text; a network reads (u, v, u - v)."""

    kind: Literal["sentence_t5"] = "sentence_t5"


@architecture
class SentenceT5(Siamese):
    """Scores from r = (u, v, u - v). The encoder is any pretrained transformer, as in VIRT's comparison.

    u - v is a linear function of (u, v), so it can express the same models as a Siamese one. It differs in where
    training starts and in what it learns first.
    """

    kind = "sentence_t5"
    config_type: ClassVar[type[HeadConfig]] = SentenceT5Config
    fusion: ClassVar[FusionName] = "sentence_t5"
