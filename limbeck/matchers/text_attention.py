"""The queries and keys that a tower computes for each text.

VIRT (Eq. 3) computes attention maps softmax(Q_x K_y^T / sqrt(d)) from the queries of one text and the keys of another.
The queries here are already scaled, by the model's own scale: 1/sqrt(d) with d the size of a head, or 1 for T5.
Relative position biases (MPNet, T5) are left out, because tokens of two separate texts have no distance.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from math import prod
from typing import Any, TypeVar

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor

from limbeck.matchers.attention import (
    FAMILIES,
    LayerInputs,
    attention_modules,
    places_of,
    sizes_of,
    special_ids,
    take,
    text_tokens,
    token_ids,
    watching,
)
from limbeck.matchers.chunks import Chunks, EachChunk, Features, each_chunk
from limbeck.matchers.gather import gather_rows, zero_of
from limbeck.signals import TextAttention

T = TypeVar("T")


class Watch:
    """Collects the queries and keys of the texts that a tower encodes, one entry for each call of `each_chunk`."""

    def __init__(self, layers: tuple[int, ...] | None) -> None:
        self.layers = layers  # None means all
        self.texts: list[TextAttention] = []

    def each_chunk(
        self, transformer: Any, texts: Chunks, run: Callable[[Features], T], recompute: bool = False
    ) -> list[T]:
        """The results of `run` for each chunk. Gradient caching runs the same function again, hooks included, so the
        queries and keys are recomputed together with the rest.
        """
        model = transformer.model
        sizes, layers = sizes_of(model), self._layers(model)
        special = special_ids(transformer.tokenizer, model.device)

        def told(features: Features) -> tuple[T, TextAttention]:
            ids = features["input_ids"]
            places, there = places_of(text_tokens(features, special))  # before modules change the features

            def see(inputs: LayerInputs) -> tuple[Tensor, Tensor]:
                return take(inputs.queries, places), take(inputs.keys, places)

            with watching(model, layers, see) as seen:
                made = run(features)
            queries, keys = zip(*(seen[layer] for layer in layers), strict=True)
            return made, TextAttention(sizes, layers, token_ids(ids, places, there), queries, keys)

        found = each_chunk(texts, told, recompute)
        self.texts.append(_joined([part for _, part in found]).rows(texts.restore))
        return [made for made, _ in found]

    def nothing(self, transformer: Any) -> None:
        """Add an entry without texts."""
        self.texts.append(_nothing(transformer.model, self._layers(transformer.model)))

    def _layers(self, model: Any) -> tuple[int, ...]:
        return self.layers if self.layers is not None else tuple(range(sizes_of(model).layers))

    def of_batch(self, document_count: int) -> tuple[TextAttention, TextAttention]:
        """Queries and documents, if they were encoded in this order. Documents are gathered from all processes."""
        queries, documents = self.texts
        return queries, everyones(documents, document_count)

    def at(self, places: Sequence[tuple[int, Tensor]], document_count: int) -> tuple[TextAttention, TextAttention]:
        """The same, if each position names the entry that holds its texts, and their rows there."""
        queries, documents = (self.texts[run].rows(rows) for run, rows in places)
        return queries, everyones(documents, document_count)


def chunk_runner(watch: Watch | None, transformer: Any, texts: Chunks) -> EachChunk:
    """`each_chunk` for these texts and this transformer; with a watch, it also collects queries and keys."""
    if watch is None:
        return each_chunk
    if not texts.passes:
        watch.nothing(transformer)
    return partial(watch.each_chunk, transformer) if texts.passes else each_chunk


def _joined(parts: Sequence[TextAttention]) -> TextAttention:
    """Concatenate the texts of all parts."""
    parts = [_widened(part, max(each.tokens.shape[1] for each in parts)) for part in parts]
    queries, keys = (
        tuple(torch.cat(layer) for layer in zip(*some, strict=True))
        for some in ([part.queries for part in parts], [part.keys for part in parts])
    )
    return replace(parts[0], tokens=torch.cat([part.tokens for part in parts]), queries=queries, keys=keys)


def _widened(part: TextAttention, width: int) -> TextAttention:
    more = width - part.tokens.shape[1]
    queries, keys = (tuple(F.pad(layer, (0, 0, 0, more)) for layer in some) for some in (part.queries, part.keys))
    return replace(part, tokens=F.pad(part.tokens, (0, more), value=-1), queries=queries, keys=keys)


def _nothing(model: Any, layers: tuple[int, ...]) -> TextAttention:
    """An entry without texts that still has gradients: see `zero_of`."""
    sizes, modules = sizes_of(model), attention_modules(model)
    name = FAMILIES[model.config.model_type].query
    sizes_of_heads = [getattr(modules[layer], name).out_features // sizes.heads for layer in layers]
    empty = tuple(zero_of(model) + torch.zeros(0, sizes.heads, 0, each, device=model.device) for each in sizes_of_heads)
    return TextAttention(sizes, layers, torch.zeros(0, 0, dtype=torch.long, device=model.device), empty, empty)


def everyones(own: TextAttention, count: int) -> TextAttention:
    """Gather the texts of all processes, `count` in total, with gradients."""
    if not (dist.is_available() and dist.is_initialized()) or dist.get_world_size() == 1:
        return own
    widest = torch.tensor(own.tokens.shape[1], device=own.tokens.device)
    dist.all_reduce(widest, dist.ReduceOp.MAX)
    own = _widened(own, int(widest))
    parts = [own.tokens, *own.queries, *own.keys]
    rows = torch.cat([part.float().flatten(1) for part in parts], dim=1)
    every = gather_rows(rows, count).split([prod(part.shape[1:]) for part in parts], dim=1)
    shaped = [some.view(count, *part.shape[1:]) for some, part in zip(every, parts, strict=True)]
    tokens = shaped[0].detach().round().long()
    layers = len(own.layers)
    return replace(own, tokens=tokens, queries=tuple(shaped[1 : 1 + layers]), keys=tuple(shaped[1 + layers :]))
