"""The bare transformers inside a matcher: what other precisions and other runtimes replace."""

from __future__ import annotations

from typing import Any

from torch import nn
from transformers import PreTrainedModel


def encoders(matcher: nn.Module) -> list[PreTrainedModel]:
    """Each of them once: the outermost, and of a model with a classifier the part before it."""
    found: list[Any] = [module.base_model for module in matcher.modules() if isinstance(module, PreTrainedModel)]
    inner = {part for each in found for part in each.modules() if part is not each}
    return [each for each in dict.fromkeys(found) if each not in inner]


def pooled_by_its_owner(matcher: nn.Module, encoder: nn.Module) -> bool:
    """Whether a classifier reads the transformer's own pooled output, so that this is a part of the score."""
    owners = [part for part in matcher.modules() if isinstance(part, PreTrainedModel) and part is not encoder]
    owned = any(part.base_model is encoder for part in owners)
    return owned and getattr(encoder, "pooler", None) is not None
