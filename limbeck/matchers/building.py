"""From a description to a matcher."""

from __future__ import annotations

import string
from typing import Any

import torch
from sentence_transformers import CrossEncoder as STCrossEncoder
from sentence_transformers import MultiVectorEncoder, SentenceTransformer
from sentence_transformers.base.modules import Dense, Module, Normalize, Router, Transformer
from sentence_transformers.multi_vector_encoder.modules import MultiVectorMask
from sentence_transformers.sentence_transformer.modules import Dropout, LayerNorm, Pooling
from torch import nn
from transformers import AddedToken, AutoConfig

from limbeck.errors import LimbeckError
from limbeck.matchers.base import Matcher
from limbeck.matchers.colbert import ColBERT
from limbeck.matchers.cross_encoder import CrossEncoder
from limbeck.matchers.depth import keep_layers, layers_to_load, refuse_absent_layers
from limbeck.matchers.dipair import DiPair
from limbeck.matchers.dual_encoder import DualEncoder
from limbeck.matchers.poly_encoder import PolyEncoder
from limbeck.matchers.quiet import quiet
from limbeck.matchers.safe_loading import HERE_ONLY, complete_weights, naming_load_errors
from limbeck.matchers.segments import JointTransformer, SegmentPooling
from limbeck.matchers.spec import MatcherSpec
from limbeck.matchers.starts import go_on, keeps_tct, learnt_parts, local_start, start_of
from limbeck.matchers.tct import TctTransformer

MARKERS = {"query": "[unused0]", "document": "[unused1]"}  # word pieces that no text has, as in Stanford's ColBERT


def build(spec: MatcherSpec) -> Matcher:
    """Make the matcher that `spec` describes; new parts are initialised from torch's global generator."""
    described, spec = spec, local_start(spec)
    with quiet():
        if spec.kind == "cross_encoder":
            return CrossEncoder(STCrossEncoder(modules=_cross_modules(spec), activation_fn=nn.Identity()))
        if spec.kind == "colbert":
            return _colbert(spec)
        if spec.kind in (DiPair.kind, PolyEncoder.kind):
            count = len(spec.tokens) if spec.separate else 1
            kind = DiPair if spec.kind == DiPair.kind else PolyEncoder
            return kind(described, [_transformer(start_of(spec), _lengths(spec)) for _ in range(count)])
        if spec.separate:
            query, document = (_dual_modules(spec, side) for side in ("query", "document"))
            modules: list[nn.Module] = [Router.for_query_document(query, document)]
        else:
            modules = [*_dual_modules(spec)]
        similarity: Any = spec.similarity
        return DualEncoder(SentenceTransformer(modules=modules, similarity_fn_name=similarity, prompts=spec.prompts))


def _transformer(spec: MatcherSpec, lengths: dict[str, int], kind: type[Transformer] = Transformer) -> Transformer:
    path = spec.start
    config: dict[str, Any] = {}
    fewer = spec.layers is not None
    with naming_load_errors(spec.start), complete_weights(path, fewer_layers=fewer):
        if spec.layers is not None:
            there = AutoConfig.from_pretrained(path, **HERE_ONLY).num_hidden_layers
            refuse_absent_layers(spec.layers, there, spec.start)
            config["num_hidden_layers"] = layers_to_load(spec.layers)
        transformer = kind(path, config_kwargs=HERE_ONLY | config, processor_kwargs=dict(HERE_ONLY), **lengths)
    if isinstance(spec.layers, tuple):
        keep_layers(transformer.model, spec.layers)
    if spec.inner_dropout is not None:
        _set_dropout(transformer.model, spec.inner_dropout)
    positions = getattr(transformer.config, "max_position_embeddings", None) or 0
    if 0 < positions < lengths["max_seq_length"]:
        problem = f"a length of {lengths['max_seq_length']} tokens is more than {spec.start} has positions for"
        raise LimbeckError(f"{problem}; ask for at most {positions}")
    for name, parameter in transformer.model.named_parameters():
        if name.startswith("pooler."):  # BERT's own pooler is not in any score
            parameter.requires_grad_(False)
    return transformer


def _set_dropout(model: nn.Module, probability: float) -> None:
    """On states and on attention, which some architectures keep as a number and others as a module."""
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = probability
        elif isinstance(getattr(module, "attention_dropout", None), float):
            module.attention_dropout = probability  # type: ignore[assignment]


def _lengths(spec: MatcherSpec) -> dict[str, int]:
    """Of texts that are tokenised apart."""
    longest = max(spec.query_length, spec.document_length)
    return {"max_seq_length": longest, "query_length": spec.query_length, "document_length": spec.document_length}


def _pooled(spec: MatcherSpec, transformer: Transformer) -> list[Module]:
    width = transformer.get_embedding_dimension()
    plain = not isinstance(transformer, TctTransformer)  # whose marks the average leaves out
    modules: list[Module] = [transformer, Pooling(width, spec.pooling, include_prompt=plain)]
    return [*modules, Dropout(spec.dropout)] if spec.dropout else modules


def _norm(spec: MatcherSpec, width: int) -> list[Module]:
    return [LayerNorm(width)] if spec.layer_norm else []


def _cross_modules(spec: MatcherSpec) -> list[nn.Module]:
    if spec.pooling == "segments":
        transformer = _transformer(start_of(spec), _lengths(spec), JointTransformer)
        transformer.model.config.num_labels = 1  # where the library looks for the number of outputs
        return [transformer, _segment_pooling(spec)]
    transformer = _transformer(start_of(spec), {"max_seq_length": spec.pair_length})
    width = transformer.get_embedding_dimension()
    head = Dense(width, spec.outputs, activation_function=nn.Identity(), module_output_name="scores")
    nn.init.normal_(head.linear.weight, std=0.02)
    nn.init.zeros_(head.linear.bias)
    learnt = [module for module in learnt_parts(spec) if not isinstance(module, SegmentPooling)]
    rest = go_on(spec.start, [*_norm(spec, width), head], learnt, new_head=True)
    return [*_pooled(spec, transformer), *rest]


def _segment_pooling(spec: MatcherSpec) -> SegmentPooling:
    """As the start has learnt it, if it has; an offset that the start lacks is new."""
    learnt = [module for module in learnt_parts(spec) if isinstance(module, SegmentPooling)]
    if learnt and (spec.offset is None or learnt[0].offset is not None):
        return learnt[0]
    fresh = SegmentPooling(offset_start=spec.offset)
    if learnt:
        fresh.load_state_dict(learnt[0].state_dict(), strict=False)
    return fresh


def _dual_modules(spec: MatcherSpec, side: str | None = None) -> list[Module]:
    kind = TctTransformer if keeps_tct(spec) else Transformer
    transformer = _transformer(start_of(spec, side), _lengths(spec), kind)
    _keep_whole(transformer.tokenizer, spec.prompts)
    width = transformer.get_embedding_dimension()
    fresh: list[Module] = _norm(spec, width)
    if spec.dim is not None:
        fresh.append(_projection(width, spec.dim))
        width = spec.dim
    if spec.scale is not None:
        start = torch.eye(width) * spec.scale**0.5
        fresh.append(Normalize())
        fresh.append(Dense(width, width, bias=False, activation_function=nn.Identity(), init_weight=start))
    return [*_pooled(spec, transformer), *go_on(spec.start, fresh, learnt_parts(spec, side))]


def _colbert(spec: MatcherSpec) -> ColBERT:
    """Tokens, a projection, unit length; punctuation of documents does not count (TCT-ColBERT Sec. 3.1)."""
    transformer = _transformer(start_of(spec), _lengths(spec))
    tokenizer: Any = transformer.tokenizer
    if tokenizer.mask_token is None:
        raise LimbeckError(
            f"{spec.start}: has no [MASK] token to fill queries with; start a colbert from another model"
        )
    transformer.query_expansion = {"strategy": "fixed", "attend": False, "length": spec.query_length}
    fresh = _projection(transformer.get_embedding_dimension(), spec.dim, module_input_name="token_embeddings")
    learnt: list[Any] = learnt_parts(spec)
    kept = bool(learnt) and learnt[-1].out_features == spec.dim
    projections = learnt if kept else go_on(spec.start, [fresh], learnt)
    model = MultiVectorEncoder(
        modules=[
            transformer,
            *projections,
            MultiVectorMask(skiplist_words=_punctuation(tokenizer)),
            Normalize(module_input_name="token_embeddings"),
        ],
        prompts=_markers(tokenizer),
        similarity_fn_name=spec.similarity,
    )
    return ColBERT(model)


def _markers(tokenizer: Any) -> dict[str, str]:
    """What tells a query from a document: a spare word piece each, or plain text where there are none."""
    vocabulary = tokenizer.get_vocab()
    if not all(marker in vocabulary for marker in MARKERS.values()):
        return {"query": "[Q] ", "document": "[D] "}
    _keep_whole(tokenizer, MARKERS)
    return MARKERS


def _keep_whole(tokenizer: Any, prompts: dict[str, str]) -> None:
    """A prompt that is one word piece of the vocabulary stays one: tokenisers cut `[unused0]` at its brackets."""
    vocabulary = tokenizer.get_vocab()
    cut = [
        word for word in map(str.strip, prompts.values()) if word in vocabulary and tokenizer.tokenize(word) != [word]
    ]
    if cut:
        special = [AddedToken(word, normalized=False, special=True) for word in cut]
        tokenizer.add_special_tokens({"additional_special_tokens": special})


def _punctuation(tokenizer: Any) -> list[str]:
    vocabulary = tokenizer.get_vocab()
    return [mark for mark in string.punctuation if mark in vocabulary]


def _projection(width: int, dim: int | None, **names: Any) -> Dense:
    """A learnt linear map that starts as a rotation, so that angles survive where the width does not shrink."""
    assert dim is not None
    projection = Dense(width, dim, bias=False, activation_function=nn.Identity(), **names)
    nn.init.orthogonal_(projection.linear.weight)
    return projection
