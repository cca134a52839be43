"""A cross-encoder that pools the two texts apart: it starts as the dual encoder whose weights it has.

The joint pass gives each text an embedding that has seen the other one; the score is their cosine times a learnt
scale. With weights that were trained as a dual encoder, this ranks sensibly before any training, where a new head on
one pooled vector ranks at random and needs thousands of pairs to catch up. (EmbedDistill's dual pooling is the same
idea, with an inner product.) sentence-transformers has no such module, so a folder of this kind loads here only.
"""

from __future__ import annotations

import json
from pathlib import Path

import torch
import torch.nn.functional as F
from sentence_transformers.base.modules import Module, Transformer
from torch import Tensor, nn


class SegmentPooling(Module):
    """scores = scale * cos(mean of the first text's tokens, mean of the second text's tokens)."""

    config_keys: list[str] = ["scale_start"]  # noqa: RUF012 (as the library declares it)

    def __init__(self, scale_start: float = 20.0) -> None:
        super().__init__()
        self.scale_start = scale_start
        self.log_scale = nn.Parameter(torch.tensor(scale_start).log())

    def forward(self, features: dict[str, Tensor], **kwargs: object) -> dict[str, Tensor]:
        tokens, mask, segment = features["token_embeddings"], features["attention_mask"], features["token_type_ids"]
        pooled = []
        for number in (0, 1):
            own = (mask * (segment == number)).unsqueeze(-1).to(tokens.dtype)  # [B, tokens, 1]
            pooled.append((tokens * own).sum(dim=1) / own.sum(dim=1).clamp(min=1))
        cosine = F.cosine_similarity(pooled[0].float(), pooled[1].float(), dim=-1)
        features["scores"] = (self.log_scale.exp() * cosine).unsqueeze(-1)  # [B, 1]
        return features

    def save(self, output_path: str, *args: object, safe_serialization: bool = True, **kwargs: object) -> None:
        self.save_config(output_path)
        self.save_torch_weights(output_path, safe_serialization=safe_serialization)

    @classmethod
    def restore(cls, folder: Path) -> SegmentPooling:
        module = cls(**cls.load_config(model_name_or_path=str(folder)))
        return cls.load_torch_weights(model_name_or_path=str(folder), model=module)


def load_segmented(folder: Path) -> list[nn.Module] | None:
    """The modules of a folder that ends in a SegmentPooling; None if it does not.

    sentence-transformers would import a foreign class only with `trust_remote_code`; this one is ours.
    """
    listing = folder / "modules.json"
    if not listing.exists():
        return None
    entries = json.loads(listing.read_text(encoding="utf-8"))
    if not entries or entries[-1]["type"] != f"{SegmentPooling.__module__}.{SegmentPooling.__name__}":
        return None
    return [Transformer.load(str(folder)), SegmentPooling.restore(folder / entries[-1]["path"])]
