"""The parts of architectures: a pretrained transformer, pooling, projections."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from sentence_transformers.base.modules import Dense, Module, Normalize, Transformer
from sentence_transformers.sentence_transformer.modules import Dropout, LayerNorm, Pooling
from torch import nn
from transformers import AddedToken, AutoConfig

from limbeck.errors import LimbeckError
from limbeck.matchers.config import MatcherConfig
from limbeck.matchers.depth import keep_layers, layers_to_load, refuse_absent_layers
from limbeck.matchers.safe_loading import HERE_ONLY, complete_weights, naming_load_errors
from limbeck.matchers.tct import TctTransformer


def start_transformer(
    config: MatcherConfig, lengths: dict[str, int], kind: type[Transformer] = Transformer
) -> Transformer:
    """The transformer that a config starts from, with the requested layers and lengths."""
    path = config.init_from
    if not (Path(path) / "config.json").exists():
        raise LimbeckError(f"{path}: has no transformer; set encoder: static, or start from another model")
    changed: dict[str, Any] = {}
    fewer = config.layers is not None
    with naming_load_errors(config.init_from), complete_weights(path, fewer_layers=fewer):
        if config.layers is not None:
            there = AutoConfig.from_pretrained(path, **HERE_ONLY).num_hidden_layers
            refuse_absent_layers(config.layers, there, config.init_from)
            changed["num_hidden_layers"] = layers_to_load(config.layers)
        transformer = kind(path, config_kwargs=HERE_ONLY | changed, processor_kwargs=dict(HERE_ONLY), **lengths)
    if isinstance(config.layers, tuple):
        keep_layers(transformer.model, config.layers)
    if config.inner_dropout is not None:
        _set_dropout(transformer.model, config.inner_dropout)
    positions = getattr(transformer.config, "max_position_embeddings", None) or 0
    if 0 < positions < lengths["max_seq_length"]:
        problem = f"a length of {lengths['max_seq_length']} tokens is more than the positions of {config.init_from}"
        raise LimbeckError(f"{problem}; ask for at most {positions}")
    for name, parameter in transformer.model.named_parameters():
        if name.startswith("pooler."):  # BERT's own pooler does not affect scores
            parameter.requires_grad_(False)
    return transformer


def _set_dropout(model: nn.Module, probability: float) -> None:
    """Set dropout on states and on attention, which some architectures store as a number and others as a module."""
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = probability
        elif isinstance(getattr(module, "attention_dropout", None), float):
            module.attention_dropout = probability  # type: ignore[assignment]


def side_lengths(config: MatcherConfig) -> dict[str, int]:
    """Lengths for texts that are tokenised separately."""
    longest = max(config.query_length, config.document_length)
    return {"max_seq_length": longest, "query_length": config.query_length, "document_length": config.document_length}


def pooled(config: Any, transformer: Transformer) -> list[Module]:
    width = transformer.get_embedding_dimension()
    plain = not isinstance(transformer, TctTransformer)  # whose markers are not part of the average
    modules: list[Module] = [transformer, Pooling(width, config.pooling, include_prompt=plain)]
    return [*modules, Dropout(config.dropout)] if config.dropout else modules


def keep_whole(tokenizer: Any, prompts: dict[str, str]) -> None:
    """Keep a prompt that is one word piece of the vocabulary in one piece: tokenisers split `[unused0]`."""
    vocabulary = tokenizer.get_vocab()
    cut = [
        word for word in map(str.strip, prompts.values()) if word in vocabulary and tokenizer.tokenize(word) != [word]
    ]
    if cut:
        special = [AddedToken(word, normalized=False, special=True) for word in cut]
        tokenizer.add_special_tokens({"additional_special_tokens": special})


def projection(width: int, dim: int | None, **names: Any) -> Dense:
    """A learnt linear map that starts as a rotation, so that angles are kept if the width does not shrink."""
    assert dim is not None
    found = Dense(width, dim, bias=False, activation_function=nn.Identity(), **names)
    nn.init.orthogonal_(found.linear.weight)
    return found


def as_dense(linear: nn.Linear) -> Dense:
    """A linear map as a module of a tower."""
    bias = linear.bias.detach().clone() if linear.bias is not None else None
    return Dense(
        linear.in_features,
        linear.out_features,
        bias=bias is not None,
        activation_function=nn.Identity(),
        init_weight=linear.weight.detach().clone(),
        init_bias=bias,
    )


def learnt_scale(config: Any, width: int) -> list[Module]:
    """Unit vectors and a learnt linear map that starts as a scale; empty if no scale is requested."""
    if config.scale is None:
        return []
    start = torch.eye(width) * config.scale**0.5
    return [Normalize(), Dense(width, width, bias=False, activation_function=nn.Identity(), init_weight=start)]


def layer_norm(config: Any, width: int) -> list[Module]:
    return [LayerNorm(width)] if config.layer_norm else []


def vector_size(modules: Sequence[Any]) -> int:
    """The vector size after some modules."""
    sized = next(module for module in reversed(modules) if hasattr(module, "get_embedding_dimension"))
    return int(sized.get_embedding_dimension())
