"""What a transformer is called with, and made-up inputs of that form to trace and to compare it with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

AXES = {2: {0: "texts", 1: "tokens"}, 4: {0: "texts", 2: "tokens", 3: "tokens"}}  # that vary, by number of dimensions
STATES, POOLED, LOGITS = "last_hidden_state", "pooler_output", "logits"  # outputs, by their names in transformers
KNOWN = ("input_ids", "attention_mask", "token_type_ids", "position_ids")
MOST = 48  # tokens of a made-up text
LONG = 300  # of one that is longer than most passages


class CannotExport(Exception):
    """Why a transformer has no graph, in a few words."""


class NothingToRound(CannotExport):
    """A transformer has a graph, but no 8-bit one."""

    def __init__(self) -> None:
        super().__init__("it has no product with a weight that could be rounded")


@dataclass(frozen=True)
class Signature:
    """The inputs that a transformer is called with, and whether its caller reads its pooled output too, or, of one with
    a classifier, only its logits.
    """

    inputs: tuple[tuple[str, int], ...]  # name, number of dimensions
    pooled: bool = False
    logits: bool = False

    @classmethod
    def of(cls, given: Mapping[str, Any], pooled: bool, logits: bool = False) -> Signature:
        return cls(tuple(sorted((name, value.ndim) for name, value in given.items())), pooled, logits)

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self.inputs]

    @property
    def outputs(self) -> list[str]:
        return [LOGITS] if self.logits else [STATES, *([POOLED] if self.pooled else [])]

    @property
    def axes(self) -> dict[str, dict[int, str]]:
        """The dimensions of inputs and outputs that vary from call to call."""
        found = {name: AXES[dims] for name, dims in self.inputs}
        rows = {name: {0: "texts"} for name in self.outputs if name != STATES}
        return {**found, **rows, **({STATES: AXES[2]} if STATES in self.outputs else {})}


def made_up(encoder: nn.Module, signature: Signature, texts: int, tokens: int, seed: int = 0) -> dict[str, Tensor]:
    """Inputs for `texts` texts, the first of `tokens` tokens, the others shorter and padded on the right."""
    config: Any = encoder.config
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, tokens + 1, (texts, 1), generator=generator)
    lengths[0] = tokens
    real = torch.arange(tokens) < lengths  # [texts, tokens]
    padding = int(getattr(config, "pad_token_id", None) or 0)
    ids = torch.randint(0, config.vocab_size - 1, (texts, tokens), generator=generator)
    ids = ids + (ids >= padding)  # any token but the padding
    types = max(1, getattr(config, "type_vocab_size", 1))
    values = {
        "input_ids": torch.where(real, ids, padding),
        "attention_mask": real.long(),
        "token_type_ids": torch.randint(0, types, (texts, tokens), generator=generator) * real,
        "position_ids": torch.arange(tokens).expand(texts, -1) * real,
    }
    if ("attention_mask", 4) in signature.inputs:
        bias = torch.zeros(texts, 1, tokens, tokens).masked_fill(~real[:, None, None, :], torch.finfo().min)
        values["attention_mask"] = bias
    unknown = next((name for name, dims in signature.inputs if name not in KNOWN or dims not in AXES), None)
    if unknown is not None:
        raise CannotExport(f"it reads {unknown}")
    return {name: values[name] for name in signature.names}


def real_tokens(given: Mapping[str, Tensor]) -> Tensor:
    """Which tokens of made-up inputs are no padding: [texts, tokens] bool."""
    mask = given["attention_mask"]
    return mask[:, 0, 0] == 0 if mask.ndim == 4 else mask.bool()


def longest(encoder: nn.Module, most: int = MOST) -> int:
    """Tokens of the longest made-up text; some models keep two positions for themselves."""
    sizes = (getattr(encoder.config, name, None) for name in ("max_position_embeddings", "n_positions"))
    positions = next((int(size) for size in sizes if size), MOST + 2)
    return max(1, min(most, positions - 2))
