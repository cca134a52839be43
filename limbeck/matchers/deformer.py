"""DeFormer: lower layers read each text separately, upper layers both together (Cao et al. 2020; VIRT Sec. 4.2)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Literal, Self

import torch
from pydantic import Field
from sentence_transformers.base.modules import Transformer
from torch import Tensor, nn

from limbeck.errors import LimbeckError
from limbeck.matchers.chunks import Features
from limbeck.matchers.config import architecture
from limbeck.matchers.depth import keep_layers
from limbeck.matchers.encoding import Encoded, Encoding, TokenVectors
from limbeck.matchers.head_matcher import ClassifierConfig, HeadConfig, HeadMatcher
from limbeck.matchers.interactions import Interaction, JointLayers
from limbeck.matchers.interactions.layer import HeadLayer

FAMILIES = ("bert", "roberta", "xlm-roberta", "electra")  # models with BERT's layers and names
SPLIT = 0.75  # share of the layers by default; the paper uses 9 of BERT-base's 12


class DeFormerConfig(ClassifierConfig):
    """Lower layers for each text separately, upper layers for both together."""

    kind: Literal["deformer"] = "deformer"
    split_layers: int | None = Field(
        None, ge=1, description="lower layers that read each text alone, of those kept; three quarters by default"
    )


@architecture
class DeFormer(HeadMatcher):
    """A pretrained transformer split in two: the lower layers' outputs for a text are stored, the upper layers are the
    interaction. So a pair costs only the upper layers.

    As in the authors' code, the second text has no [CLS], has segment 1 (if the model has segments), and its own
    positions from 0. The prediction layer is a mean over all tokens of both texts and a linear map, as in VIRT's
    teacher.
    """

    kind = "deformer"
    config_type: ClassVar[type[HeadConfig]] = DeFormerConfig
    outputs_are_the_encoders: ClassVar[bool] = False  # all tokens of all training texts are too much to store

    @classmethod
    def build(cls, config: Any, local: Any) -> Self:
        encoders = cls.start_encoders(local)
        head = upper_layers(encoders[0], config)
        for encoder in encoders:
            keep_layers(encoder.model, range(split_point(encoder, config)))
        return cls(config, encoders, head)

    def __init__(self, config: Any, encoders: Sequence[Transformer], head: Interaction | None = None) -> None:
        if head is None:
            raise LimbeckError("a deformer without its upper layers cannot be used; save the model again")
        super().__init__(config, encoders, head)

    def encoding(self, position: int) -> Encoding:
        return Encoding(self.width, "ragged")

    def _select(self, states: Tensor, mask: Tensor, position: int) -> Encoded:
        return TokenVectors(states, mask)

    def _reading(self, position: int) -> tuple[Any, ...]:
        return (*super()._reading(position), position)

    def _preprocess(self, texts: list[str], position: int) -> Features:
        features = super()._preprocess(texts, position)
        if position:
            features = {name: _without_first(value) for name, value in features.items()}
        segments = getattr(self.encoder(position).config, "type_vocab_size", 1)
        features["token_type_ids"] = torch.full_like(features["input_ids"], min(position, segments - 1))
        return features


def split_point(encoder: Transformer, config: Any) -> int:
    """The number of layers that read each text separately."""
    there = int(encoder.config.num_hidden_layers)
    count = config.split_layers or max(1, int(there * SPLIT))
    if count >= there:
        problem = f"split_layers={count}: there are {there} layers, and none is left to read both texts"
        remedy = f"split at most {there - 1}" if there > 1 else "keep at least 2 layers"
        raise LimbeckError(f"{problem}; {remedy}")
    return count


def upper_layers(encoder: Transformer, config: Any) -> JointLayers:
    """The layers above the split, with their weights, in plain torch, and a new classifier."""
    theirs: Any = encoder.config
    if theirs.model_type not in FAMILIES or theirs.hidden_act != "gelu":
        problem = f"{config.init_from}: is a {theirs.model_type} with {getattr(theirs, 'hidden_act', 'other layers')}"
        raise LimbeckError(f"{problem}; a deformer needs layers as BERT has them, e.g. of {', '.join(FAMILIES)}")
    bert: Any = encoder.model
    upper = bert.encoder.layer[split_point(encoder, config) :]
    head = JointLayers(
        dim=theirs.hidden_size,
        layers=len(upper),
        heads=theirs.num_attention_heads,
        intermediate=theirs.intermediate_size,
        outputs=config.outputs,
        dropout=config.dropout,
        inner_dropout=upper[0].output.dropout.p,
        attention_dropout=upper[0].attention.self.dropout.p,
        eps=theirs.layer_norm_eps,
    )
    for ours, layer in zip(head.layers, upper, strict=True):
        assert isinstance(ours, HeadLayer)
        copy_layer(layer, ours)
    return head


@torch.no_grad()
def copy_layer(theirs: Any, ours: HeadLayer) -> None:
    """Copy the weights of a BERT layer into our layer."""
    attention = theirs.attention.self
    for kind in ("weight", "bias"):
        joined = torch.cat([getattr(part, kind) for part in (attention.query, attention.key, attention.value)])
        getattr(ours.attend, kind).copy_(joined)
    pairs: tuple[tuple[nn.Module, nn.Module], ...] = (
        (theirs.attention.output.dense, ours.merge),
        (theirs.attention.output.LayerNorm, ours.first_norm),
        (theirs.intermediate.dense, ours.widen),
        (theirs.output.dense, ours.narrow),
        (theirs.output.LayerNorm, ours.second_norm),
    )
    for source, target in pairs:
        target.load_state_dict(source.state_dict())


def _without_first(value: Any) -> Any:
    """A feature [texts, tokens] without the first token, the [CLS]."""
    return value[:, 1:] if isinstance(value, Tensor) and value.dim() == 2 else value
