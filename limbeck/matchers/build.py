"""From a description to a matcher: which weights to start from, how deep, how pooled, how wide."""

from __future__ import annotations

from typing import Any, Literal

import torch
from pydantic import BaseModel, ConfigDict, Field, model_validator
from safetensors import SafetensorError
from sentence_transformers import CrossEncoder as STCrossEncoder
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Dense, Module, Normalize, Router, Transformer
from sentence_transformers.sentence_transformer.modules import Dropout, LayerNorm, Pooling
from torch import nn

from limbeck.errors import LimbeckError
from limbeck.matchers.base import Matcher
from limbeck.matchers.cross_encoder import CrossEncoder
from limbeck.matchers.dual_encoder import DualEncoder
from limbeck.matchers.names import resolve
from limbeck.matchers.quiet import quiet
from limbeck.matchers.segments import JointTransformer, SegmentPooling


class MatcherSpec(BaseModel):
    """A matcher to be made: the `student` of a recipe, or a teacher that is trained first."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: Literal["dual_encoder", "cross_encoder"] = "dual_encoder"
    start: str = Field("minilm", description="weights to start from: a folder, a hub name, or `minilm`")
    layers: int | None = Field(None, ge=1, description="keep the first so many layers; all by default")
    pooling: Literal["mean", "cls", "segments"] = Field(
        "mean", description="segments (cross-encoder): each text by itself; starts as the dual encoder it was"
    )
    query_length: int = Field(32, ge=4, description="tokens of a query, special ones included")
    document_length: int = Field(128, ge=4, description="tokens of a document, special ones included")
    dropout: float = Field(0.0, ge=0, lt=1, description="embedding dropout: on the pooled output, in training only")
    layer_norm: bool = Field(False, description="layer norm on the pooled output")
    dim: int | None = Field(None, ge=1, le=65536, description="embedding size after a learnt projection (dual encoder)")
    similarity: Literal["dot", "cosine"] = "dot"
    scale: float | None = Field(
        None, gt=0, description="unit vectors, then a learnt linear map that starts as this scale (dual encoder, dot)"
    )
    prompts: dict[str, str] = Field({}, description="text before each query or document, e.g. {query: 'query: '}")
    separate: bool = Field(False, description="a tower of its own for each side (dual encoder)")
    outputs: int = Field(1, ge=1, description="scores per pair (cross-encoder)")

    @model_validator(mode="after")
    def _options_fit_the_kind(self) -> MatcherSpec:
        if self.kind == "cross_encoder":
            wrong = [name for name in ("dim", "scale") if getattr(self, name) is not None]
            wrong += [name for name in ("separate", "prompts") if getattr(self, name)]
            wrong += ["similarity"] if self.similarity != "dot" else []
            if wrong:
                raise ValueError(f"{wrong[0]} belongs to a dual_encoder; a cross_encoder has one joint pass")
            if self.pooling == "segments" and (self.outputs != 1 or self.dropout or self.layer_norm):
                raise ValueError("pooling: segments has one output and no head; drop outputs, dropout and layer_norm")
        elif self.outputs != 1:
            raise ValueError("outputs belongs to a cross_encoder; a dual_encoder has one score per pair")
        elif self.pooling == "segments":
            raise ValueError("pooling: segments belongs to a cross_encoder; a dual_encoder sees one text at a time")
        if self.scale is not None and self.similarity != "dot":
            raise ValueError("scale needs similarity: dot; a cosine cannot leave [-1, 1]")
        return self

    @property
    def pair_length(self) -> int:
        """Tokens of both texts together, for a cross-encoder."""
        return self.query_length + self.document_length


def build(spec: MatcherSpec) -> Matcher:
    """Make the matcher that `spec` describes; new parts are initialised from torch's global generator."""
    with quiet():
        if spec.kind == "cross_encoder":
            return CrossEncoder(STCrossEncoder(modules=_cross_modules(spec), activation_fn=nn.Identity()))
        modules: list[nn.Module] = [*_dual_modules(spec)]
        if spec.separate:
            modules = [Router.for_query_document(_dual_modules(spec), _dual_modules(spec))]
        return DualEncoder(
            SentenceTransformer(modules=modules, similarity_fn_name=spec.similarity, prompts=spec.prompts)
        )


def _transformer(spec: MatcherSpec, lengths: dict[str, int], kind: type[Transformer] = Transformer) -> Transformer:
    path = resolve(spec.start)
    config: dict[str, Any] = {}
    if spec.layers is not None:
        config["num_hidden_layers"] = spec.layers
    try:
        _refuse_more_layers_than_there_are(spec, path)
        transformer = kind(path, config_kwargs=config, **lengths)
    except (OSError, ValueError, KeyError, SafetensorError) as error:
        problem = f"{spec.start}: no model that can be loaded ({first_line(error)})"
        raise LimbeckError(f"{problem}; give a folder or a hub name") from error
    positions = getattr(transformer.config, "max_position_embeddings", None) or 0
    if 0 < positions < lengths["max_seq_length"]:
        problem = f"a length of {lengths['max_seq_length']} tokens is more than {spec.start} has positions for"
        raise LimbeckError(f"{problem}; ask for at most {positions}")
    for name, parameter in transformer.model.named_parameters():
        if name.startswith("pooler."):  # BERT's own pooler is not in any score
            parameter.requires_grad_(False)
    return transformer


def _refuse_more_layers_than_there_are(spec: MatcherSpec, path: str) -> None:
    """The library would fill the missing layers with noise."""
    from transformers import AutoConfig

    there = AutoConfig.from_pretrained(path).num_hidden_layers
    if spec.layers is not None and spec.layers > there:
        raise LimbeckError(f"layers={spec.layers} is more than {spec.start} has; ask for at most {there}")


def _lengths(spec: MatcherSpec) -> dict[str, int]:
    """Of texts that are tokenised apart."""
    longest = max(spec.query_length, spec.document_length)
    return {"max_seq_length": longest, "query_length": spec.query_length, "document_length": spec.document_length}


def _pooled(spec: MatcherSpec, transformer: Transformer) -> list[Module]:
    width = transformer.get_embedding_dimension()
    modules: list[Module] = [transformer, Pooling(width, spec.pooling)]
    if spec.dropout:
        modules.append(Dropout(spec.dropout))
    if spec.layer_norm:
        modules.append(LayerNorm(width))
    return modules


def _cross_modules(spec: MatcherSpec) -> list[nn.Module]:
    if spec.pooling == "segments":
        transformer = _transformer(spec, _lengths(spec), JointTransformer)
        transformer.model.config.num_labels = 1  # where the library looks for the number of outputs
        return [transformer, SegmentPooling()]
    transformer = _transformer(spec, {"max_seq_length": spec.pair_length})
    width = transformer.get_embedding_dimension()
    head = Dense(width, spec.outputs, activation_function=nn.Identity(), module_output_name="scores")
    nn.init.normal_(head.linear.weight, std=0.02)
    nn.init.zeros_(head.linear.bias)
    return [*_pooled(spec, transformer), head]


def _dual_modules(spec: MatcherSpec) -> list[Module]:
    transformer = _transformer(spec, _lengths(spec))
    modules = _pooled(spec, transformer)
    width = transformer.get_embedding_dimension()
    if spec.dim is not None:
        projection = Dense(width, spec.dim, bias=False, activation_function=nn.Identity())
        nn.init.orthogonal_(projection.linear.weight)
        modules.append(projection)
        width = spec.dim
    if spec.scale is not None:
        start = torch.eye(width) * spec.scale**0.5
        modules.append(Normalize())
        modules.append(Dense(width, width, bias=False, activation_function=nn.Identity(), init_weight=start))
    return modules


def first_line(error: BaseException) -> str:
    """The first line of somebody else's error, for use inside one of ours."""
    return str(error).strip().split("\n", 1)[0][:200]
