"""The modules of a cross-encoder, from its config: a transformer, a pooling, and a head if it has one."""

from __future__ import annotations

from typing import Any

from sentence_transformers.base.modules import Dense, Transformer
from torch import nn

from limbeck.matchers.dual_pooling import APART, Boundaries, DualPooling
from limbeck.matchers.parts import layer_norm, pooled, side_lengths, start_transformer
from limbeck.matchers.segments import ACROSS, JointTransformer, SegmentPooling
from limbeck.matchers.starts import go_on, learnt_parts, start_of


def modules_of(config: Any) -> list[nn.Module]:
    if config.pooling in APART:
        transformer = _joint(config) if config.pooling == "segments" or config.across is not None else _plain(config)
        transformer.model.config.num_labels = 1  # the library reads the number of outputs here
        return [transformer, _dual_pooling(config, transformer)]
    transformer = _plain(config)
    width = transformer.get_embedding_dimension()
    head = Dense(width, config.outputs, activation_function=nn.Identity(), module_output_name="scores")
    nn.init.normal_(head.linear.weight, std=0.02)
    nn.init.zeros_(head.linear.bias)
    learnt = [module for module in learnt_parts(config) if not isinstance(module, SegmentPooling)]
    rest = go_on(config.init_from, [*layer_norm(config, width), head], learnt, new_head=True)
    return [*pooled(config, transformer), *rest]


def _plain(config: Any) -> Transformer:
    """Reads [CLS] query [SEP] document [SEP] as one sequence."""
    return start_transformer(start_of(config), {"max_seq_length": config.query_length + config.document_length})


def _joint(config: Any) -> Transformer:
    """Reads each text with its own special tokens and positions."""
    transformer = start_transformer(start_of(config), side_lengths(config), JointTransformer)
    assert isinstance(transformer, JointTransformer)
    transformer.across = ACROSS if config.across is None else config.across
    return transformer


def _dual_pooling(config: Any, transformer: Transformer) -> nn.Module:
    if config.pooling == "segments":
        return _segment_pooling(config)
    return DualPooling(config.pooling, Boundaries.of(transformer.tokenizer, config.pooling, config.init_from))


def _segment_pooling(config: Any) -> SegmentPooling:
    """The scale and offset of the start, if it has them; an offset that it lacks is new."""
    learnt = [module for module in learnt_parts(config) if isinstance(module, SegmentPooling)]
    if learnt and (config.offset is None or learnt[0].offset is not None):
        return learnt[0]
    fresh = SegmentPooling(offset_start=config.offset)
    if learnt:
        fresh.load_state_dict(learnt[0].state_dict(), strict=False)
    return fresh
