"""A cross-encoder that starts as the dual encoder whose weights it has.

Both texts are in one pass, each with its own special tokens and positions from 0. A constant on the attention logits
between the two texts initially keeps their influence on each other low. With minus infinity, the pass equals two passes
of the dual encoder; at -4 it starts close to that, and training raises the attention between the texts if that helps.
Each text's tokens are pooled separately, and the score is the cosine of the two times a learnt scale. So it ranks as
well as its start before any training, while a new head on one pooled vector ranks at random and needs thousands of
pairs to catch up. With sqrt(scale) on each unit vector the score is an inner product, and the vectors are proxies of
query and document as in EmbedDistill's dual pooling (`dual_pooling.py`).

sentence-transformers has no such modules, so only Limbeck can load a folder of this kind.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from sentence_transformers.base.modules import Module, Transformer
from torch import Tensor, nn

from limbeck.errors import LimbeckError
from limbeck.matchers.dual_pooling import DOCUMENT, QUERY

ACROSS = -4.0  # added to the attention logits between the two texts
FAMILIES = ("bert", "electra")  # models with additive positions that can be passed as input


class JointTransformer(Transformer):
    """Runs pairs: [CLS] query [SEP] [CLS] document [SEP], positions start again at 0 in the second text."""

    config_keys: ClassVar[list[str]] = [*Transformer.config_keys, "across"]  # type: ignore[misc]

    def __init__(self, *args: Any, across: float = ACROSS, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.across = across
        if self.config.model_type not in FAMILIES:
            kinds = " or ".join(FAMILIES)
            problem = f"pooling: segments, or across, needs a model of {kinds}'s kind, not {self.config.model_type}"
            raise LimbeckError(f"{problem}; use pooling: mean, or drop across")

    def preprocess(
        self, inputs: Any, prompt: str | None = None, processing_kwargs: Any = None, **kwargs: Any
    ) -> dict[str, Any]:
        """Tokenise each text separately, with its own length, and concatenate them without padding."""
        first, second = (
            super(JointTransformer, self).preprocess([pair[side] for pair in inputs], prompt=prompt, task=task)
            for side, task in ((0, "query"), (1, "document"))
        )
        lengths = first["attention_mask"].sum(dim=1, keepdim=True)  # [B, 1]
        totals = lengths + second["attention_mask"].sum(dim=1, keepdim=True)
        place = torch.arange(int(totals.max())).expand(len(totals), -1)  # [B, tokens]
        real, in_second = place < totals, place >= lengths
        position = torch.where(in_second, place - lengths, place) * real
        ids = [
            text["input_ids"].gather(1, position.clamp(max=text["input_ids"].shape[1] - 1)) for text in (first, second)
        ]
        return {
            "input_ids": torch.where(in_second, ids[1], ids[0]) * real,
            "attention_mask": real.long(),
            "token_type_ids": (in_second & real).long(),
            "position_ids": position,
            "modality": "text",
        }

    def forward(self, features: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        mask, text = features["attention_mask"], features["token_type_ids"]
        dtype = self.model.dtype
        apart = text[:, None, :, None] != text[:, None, None, :]  # [B, 1, tokens, tokens]
        bias = (apart * self.across).to(dtype).masked_fill(mask[:, None, None, :] == 0, torch.finfo(dtype).min)
        output = self.model(
            input_ids=features["input_ids"],
            attention_mask=bias,
            position_ids=features["position_ids"],
            token_type_ids=torch.zeros_like(text),
        )
        return features | {"token_embeddings": output.last_hidden_state}


class SegmentPooling(Module):
    """scores = scale * cos(mean of the first text's tokens, mean of the second text's tokens) [+ offset].

    Ranking needs no offset; the logit of a probability does, because most cosines are above 0.
    """

    config_keys: list[str] = ["scale_start", "offset_start"]  # noqa: RUF012 (declared as in the library)

    def __init__(self, scale_start: float = 20.0, offset_start: float | None = None) -> None:
        super().__init__()
        self.scale_start, self.offset_start = scale_start, offset_start
        self.log_scale = nn.Parameter(torch.tensor(scale_start).log())
        self.offset = None if offset_start is None else nn.Parameter(torch.tensor(float(offset_start)))

    def forward(self, features: dict[str, Tensor], **kwargs: object) -> dict[str, Tensor]:
        tokens, mask, segment = features["token_embeddings"], features["attention_mask"], features["token_type_ids"]
        pooled = []
        for number in (0, 1):
            own = (mask * (segment == number)).unsqueeze(-1).to(tokens.dtype)  # [B, tokens, 1]
            pooled.append((tokens * own).sum(dim=1) / own.sum(dim=1).clamp(min=1))
        query, document = (F.normalize(each.float(), dim=-1) * (self.log_scale / 2).exp() for each in pooled)
        features |= {QUERY: query, DOCUMENT: document}
        cosine = F.cosine_similarity(pooled[0].float(), pooled[1].float(), dim=-1)
        scores = self.log_scale.exp() * cosine
        features["scores"] = (scores if self.offset is None else scores + self.offset).unsqueeze(-1)  # [B, 1]
        return features

    def get_config_dict(self) -> dict[str, Any]:
        """Omit an offset that does not exist, so that scores stored before there were offsets remain valid."""
        return {key: value for key, value in super().get_config_dict().items() if value is not None}

    def save(self, output_path: str, *args: object, safe_serialization: bool = True, **kwargs: object) -> None:
        self.save_config(output_path)
        self.save_torch_weights(output_path, safe_serialization=safe_serialization)

    @classmethod
    def restore(cls, folder: Path) -> SegmentPooling:
        module = cls(**cls.load_config(model_name_or_path=str(folder)))
        return cls.load_torch_weights(model_name_or_path=str(folder), model=module)
