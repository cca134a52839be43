"""Reads the queries and keys of chosen layers from a running encoder.

Forward hooks on the query and key projections read them, so every implementation of attention works: eager, sdpa, and
the one in `cpu_speedups.py`. Only the layers that are asked for have hooks, and only what the caller keeps stays in
memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from inspect import signature
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor, nn

from limbeck.errors import LimbeckError
from limbeck.matchers.base import tokeniser_digest
from limbeck.signals import AttentionSizes

T = TypeVar("T")
LONG = "a " * 9000  # a text that every model truncates


class Family(NamedTuple):
    """The names of the projections in a family's attention modules."""

    query: str
    key: str


BERT = Family("query", "key")
FAMILIES = {  # by `model_type`; MiniLM is a BERT
    "bert": BERT,
    "roberta": BERT,
    "xlm-roberta": BERT,
    "electra": BERT,
    "distilbert": Family("q_lin", "k_lin"),
    "mpnet": Family("q", "k"),
    "t5": Family("q", "k"),
}


@dataclass(frozen=True)
class AttentionFacts:
    """What is checked about an encoder's attention before training."""

    sizes: AttentionSizes
    tokenizer: str  # a digest; two encoders with the same one split texts into the same tokens
    spell: Callable[[Sequence[int]], list[str]] = field(compare=False, repr=False)  # token ids as readable words


class LayerInputs(NamedTuple):
    """The inputs of one layer's attention for a batch of sequences."""

    queries: Tensor  # [n, heads, tokens, d], times the model's own scale: 1/sqrt(d), or 1 for T5
    keys: Tensor  # [n, heads, tokens, d]
    offsets: Callable[[], Tensor | None]  # added to the logits: [n or 1, heads or 1, tokens or 1, tokens]


def facts_of(transformer: Any) -> AttentionFacts:
    """The facts about a sentence-transformers Transformer; an unknown family is an error."""
    model = getattr(transformer, "model", transformer)
    tokenizer = transformer.tokenizer
    return AttentionFacts(sizes_of(model), tokeniser_digest(tokenizer, of_words=True), partial(_spelled, tokenizer))


def _spelled(tokenizer: Any, ids: Sequence[int]) -> list[str]:
    """Tokens without the marks that byte-level and sentence-piece vocabularies have for a space."""
    return [tokenizer.decode([token]).strip() or str(tokenizer.convert_ids_to_tokens(token)) for token in ids]


def sizes_of(model: Any) -> AttentionSizes:
    return AttentionSizes(len(attention_modules(model)), int(model.config.num_attention_heads))


def attention_modules(model: Any) -> list[nn.Module]:
    """The self-attention modules of an encoder, in the order of its layers."""
    kind = getattr(getattr(model, "config", None), "model_type", type(model).__name__)
    if kind not in FAMILIES:
        problem = f"the attention of a model of type {kind} cannot be read, only that of {', '.join(FAMILIES)}"
        raise LimbeckError(f"{problem}; use one of these, or drop virt")
    family = FAMILIES[kind]
    return [module for module in model.modules() if _attends(module, family)]


def _attends(module: nn.Module, family: Family) -> bool:
    parts = (getattr(module, name, None) for name in family)
    return all(isinstance(part, nn.Linear) for part in parts) and not getattr(module, "is_decoder", False)


@contextmanager
def watching(model: Any, layers: Sequence[int], see: Callable[[LayerInputs], T]) -> Iterator[dict[int, T]]:
    """Inside the block, call `see` on the inputs of each of `layers`; the results are in a dictionary by layer."""
    modules, seen, handles = attention_modules(model), dict[int, T](), []
    heads = int(model.config.num_attention_heads)
    family = FAMILIES[model.config.model_type]
    for number in layers:
        handles += _hooks(modules[number], family, heads, partial(_note, seen, number, see))
    try:
        yield seen
    finally:
        for handle in handles:
            handle.remove()


def _note(seen: dict[int, T], number: int, see: Callable[[LayerInputs], T], inputs: LayerInputs) -> None:
    seen[number] = see(inputs)


def _hooks(module: nn.Module, family: Family, heads: int, tell: Callable[[LayerInputs], object]) -> list[Any]:
    projected: dict[str, Tensor] = {}

    def keep(name: str) -> Callable[..., None]:
        return lambda _, __, output: projected.update({name: output})

    def attended(_: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        queries, keys = (_by_head(projected.pop(name), heads) for name in family)
        scale = getattr(module, "scaling", queries.shape[-1] ** -0.5)
        tell(LayerInputs(queries * scale, keys, lambda: _offsets(module, args, kwargs, output)))

    told = [getattr(module, name).register_forward_hook(keep(name)) for name in family]
    return [*told, module.register_forward_hook(attended, with_kwargs=True)]


def _by_head(states: Tensor, heads: int) -> Tensor:
    """[n, tokens, heads * d] -> [n, heads, tokens, d]"""
    return states.unflatten(-1, (heads, -1)).transpose(1, 2)


def _offsets(module: nn.Module, args: Any, kwargs: Any, output: Any) -> Tensor | None:
    """What the model adds to the logits of one layer: its mask, in any of the forms that the implementations use, and
    relative position biases (MPNet, T5).
    """
    given = signature(module.forward).bind(*args, **kwargs).arguments
    bias: Tensor | None = given.get("position_bias")
    if bias is None and hasattr(module, "has_relative_attention_bias"):  # the first layer of a T5 computes it
        bias = output[1]
    mask: Tensor | None = given.get("attention_mask", given.get("mask"))
    if mask is None:
        return bias
    if mask.dim() == 2:
        mask = mask[:, None, None, :].bool()
    if not mask.is_floating_point():
        dtype = bias.dtype if bias is not None else torch.float32
        mask = torch.zeros_like(mask, dtype=dtype).masked_fill(~mask.bool(), torch.finfo(dtype).min)
    return mask if bias is None else mask + bias


def text_tokens(features: dict[str, Any], special: Tensor) -> Tensor:
    """Which tokens [n, tokens] belong to the text itself, and not to padding, special tokens or a prompt."""
    attended = features["attention_mask"].bool()
    real = attended & ~torch.isin(features["input_ids"], special)
    if "query_expansion_positions" in features:  # ColBERT fills queries with these [MASK] tokens
        real &= ~features["query_expansion_positions"].bool()
    if features.get("prompt_length"):
        real &= attended.cumsum(dim=1) > features["prompt_length"]
    return real


def most_text_tokens(tokenizer: Any, preprocess: Callable[[list[str]], dict[str, Any]]) -> int:
    """How many tokens of a very long text are read. It tokenises one, to account for prompts and special tokens."""
    features = preprocess([LONG])
    return int(text_tokens(features, special_ids(tokenizer)).sum())


def special_ids(tokenizer: Any, device: torch.device | str = "cpu") -> Tensor:
    """The ids of special tokens. The token for unknown words is not one of them: it stands for a word of the text."""
    marks = {getattr(tokenizer, f"{name}_token_id", None) for name in ("pad", "cls", "sep", "bos", "eos", "mask")}
    words = {getattr(tokenizer, "unk_token_id", None)} - marks
    return torch.tensor(sorted(set(tokenizer.all_special_ids) - words), device=device)


def places_of(real: Tensor) -> tuple[Tensor, Tensor]:
    """The positions [n, most] of the real tokens of each row, in order, and a mask [n, most] of those that exist."""
    most = int(real.sum(dim=1).max()) if len(real) else 0
    places = torch.argsort((~real).int(), dim=1, stable=True)[:, :most]
    return places, real.gather(1, places)


def take(states: Tensor, places: Tensor) -> Tensor:
    """Select states [n, heads, tokens, d] by their positions [n, some]: [n, heads, some, d]."""
    _, heads, _, d = states.shape
    return states.gather(2, places[:, None, :, None].expand(-1, heads, -1, d))


def token_ids(ids: Tensor, places: Tensor, there: Tensor) -> Tensor:
    """The ids [n, tokens] at the given positions, -1 if there is no token."""
    return torch.where(there, ids.gather(1, places), -1)
