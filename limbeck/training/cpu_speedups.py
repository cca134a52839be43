"""A faster training step on a CPU with the same arithmetic, by removing overhead of torch.

- Torch's dropout draws one random number per element: a seventh of a step. Here one draw of 64 bits is used for four
  elements.
- Torch's attention with dropout is slow in any case, so it is written out here, with this dropout.
- Each pass over a chunk of texts creates a gradient of the whole token table, [vocabulary, width], almost all zeros.
  Here the tokens of a batch are looked up once, and chunks index the result.

Dropout rates are exact to 1 in 65,536. Everything is restored at the end of a stage.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from limbeck.matchers.base import Matcher, PreparedBatch

ATTENTION = "limbeck"
DRAWS = 2**16


class _Dropped(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor, dropped: int) -> Tensor:
        """Drop `dropped` of 65,536 elements, and rescale the others."""
        bits = torch.empty(-(-values.numel() // 4), dtype=torch.int64).random_(-(2**63), None)
        keep = bits.view(torch.int16)[: values.numel()].view(values.shape) >= dropped - DRAWS // 2
        ctx.save_for_backward(keep)
        ctx.factor = DRAWS / (DRAWS - dropped)
        return values.mul(keep).mul_(ctx.factor)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        (keep,) = ctx.saved_tensors
        return gradient.mul(keep).mul_(ctx.factor), None


def dropped(values: Tensor, rate: float) -> Tensor:
    """Dropout, in training."""
    count = round(rate * DRAWS)
    return _Dropped.apply(values, count) if 0 < count < DRAWS else F.dropout(values, rate)


class FastDropout(nn.Dropout):
    """`nn.Dropout`, with fewer random draws on a CPU."""

    def forward(self, values: Tensor) -> Tensor:
        if not self.training or values.device.type != "cpu":
            return super().forward(values)
        return dropped(values, self.p)


def attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    position_bias: Tensor | None = None,
    **more: Any,
) -> tuple[Tensor, None]:
    """Attention of queries, keys and values [B, heads, tokens, width]; torch's own if this one is not faster."""
    usual = getattr(module, "num_key_value_groups", 1) == 1 and not getattr(module, "is_causal", True)
    if not dropout or query.device.type != "cpu" or not usual or scaling is None:
        told: Any = more | ({} if position_bias is None else {"position_bias": position_bias})
        return sdpa_attention_forward(module, query, key, value, attention_mask, dropout, scaling, **told)
    logits = (query * scaling) @ key.transpose(-1, -2)
    if position_bias is not None:  # T5's
        logits = logits + position_bias
    if attention_mask is not None and attention_mask.dtype == torch.bool:
        logits = logits.masked_fill(~attention_mask, torch.finfo(logits.dtype).min)
    elif attention_mask is not None:
        logits = logits + attention_mask
    found = dropped(logits.softmax(dim=-1), dropout) @ value
    return found.transpose(1, 2).contiguous(), None


AttentionInterface.register(ATTENTION, attention)
AttentionMaskInterface.register(ATTENTION, sdpa_mask)


@contextmanager
def faster(matcher: nn.Module) -> Iterator[None]:
    """Train a matcher with the dropout and attention above inside the block."""
    dropouts = [module for module in matcher.modules() if type(module) is nn.Dropout]
    models = [module for module in matcher.modules() if isinstance(module, PreTrainedModel)]
    configs = [model.config for model in models if model.config._attn_implementation == "sdpa"]
    for module in dropouts:
        module.__class__ = FastDropout
    for config in configs:
        config._attn_implementation = ATTENTION
    try:
        yield
    finally:
        for module in dropouts:
            module.__class__ = nn.Dropout
        for config in configs:
            config._attn_implementation = "sdpa"


@contextmanager
def one_lookup(matcher: Matcher, inputs: PreparedBatch) -> Iterator[None]:
    """Let the chunks of a prepared batch share one lookup in each token table inside the block."""
    models = [module for module in matcher.modules() if isinstance(module, PreTrainedModel)]
    tables = [table for model in models if isinstance(table := model.get_input_embeddings(), nn.Embedding)]
    tables = [table for table in tables if table.weight.requires_grad and table.weight.device.type == "cpu"]
    ids = list(_token_ids(inputs))
    if len(ids) < 2 or not torch.is_grad_enabled():
        tables = []
    for table in tables:
        table.forward = _Found(table, ids)  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        for table in tables:
            del table.forward


class _Found:
    """The rows of a table for the tokens of one batch."""

    def __init__(self, table: nn.Embedding, ids: list[Tensor]) -> None:
        present = torch.unique(torch.cat([some.flatten() for some in ids]))
        self.place = torch.zeros(table.num_embeddings, dtype=torch.int64)
        self.place[present] = torch.arange(len(present))
        self.rows = table.weight.index_select(0, present)
        padding = table.padding_idx
        there = padding is not None and bool((present == padding).any())
        self.padding = int(self.place[padding]) if there else None

    def __call__(self, ids: Tensor) -> Tensor:
        return F.embedding(self.place[ids], self.rows, self.padding)


def _token_ids(prepared: Any) -> Iterator[Tensor]:
    if is_dataclass(prepared):
        yield from _token_ids([getattr(prepared, field.name) for field in fields(prepared)])
    elif isinstance(prepared, dict):
        if isinstance(ids := prepared.get("input_ids"), Tensor):
            yield ids
        for part in prepared.values():
            yield from _token_ids(part)
    elif isinstance(prepared, list | tuple):
        for part in prepared:
            yield from _token_ids(part)
