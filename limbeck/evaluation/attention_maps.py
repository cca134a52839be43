"""The attention between two texts, token by token (VIRT Fig. 6), and how far a student's is from its teacher's (Eq. 4).

A cross-encoder has these maps. A model that encodes texts apart has none, so its *virtual* map is formed from the
queries of one text and the keys of the other (Eq. 3).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from limbeck.errors import LimbeckError
from limbeck.matchers.base import Matcher, TextBatch
from limbeck.matchers.device import on_device
from limbeck.objectives.attention import virt, virtual_map
from limbeck.progress import track
from limbeck.signals import (
    CROSS_ATTENTION,
    TEXT_ATTENTION,
    AttentionSizes,
    CrossAttention,
    Signals,
    Targets,
    TextAttention,
)

BATCH = 16  # pairs that are read at once
Pair = tuple[str, str]
Lengths = tuple[int, int]


@dataclass(frozen=True)
class TokenMap:
    """The attention between the two texts of a pair in one layer, averaged over heads.

    Rows sum to 1: they say where, among the other text's tokens, a token looks. `share` is how much of its attention a
    cross-encoder gives to the other text at all; a virtual map has no other place to look.
    """

    first: tuple[str, ...]  # the tokens of each text, m and n of them
    second: tuple[str, ...]
    there: np.ndarray  # [m, n] from the first text to the second
    back: np.ndarray  # [n, m]
    share: float = 1.0

    @property
    def is_empty(self) -> bool:
        return not self.first or not self.second


def is_virtual(model: Matcher) -> bool:
    """Whether the model encodes texts apart, so that its map is formed afterwards; refuses one that shows no map."""
    if not model.shows & (TEXT_ATTENTION | CROSS_ATTENTION):
        raise LimbeckError(
            f"a {model.kind} shows no attention; use a cross_encoder, or a model that encodes texts apart"
        )
    return bool(model.shows & TEXT_ATTENTION)


def lengths_of(model: Matcher) -> Lengths:
    """How many tokens of each text the model reads."""
    return model.text_tokens(0), model.text_tokens(1)


def chosen_layer(model: Matcher, layer: int | None, name: str = "the model") -> int:
    """The layer, from 0; the last by default. One that does not exist is refused."""
    count = model.attention(0).sizes.layers
    if layer is not None and not 0 <= layer < count:
        raise LimbeckError(f"layer {layer}: {name} has layers 0 to {count - 1}; give one of these")
    return count - 1 if layer is None else layer


def token_maps(
    model: Matcher, pairs: Sequence[Pair], layer: int | None = None, lengths: Lengths | None = None
) -> list[TokenMap]:
    """The map of each pair; `lengths` is how many tokens of each text to read, where that is not the model's own."""
    virtual, number = is_virtual(model), chosen_layer(model, layer)
    with _reading(model, (number,), None if virtual else lengths or lengths_of(model)):
        found = [_maps(model, signals) for signals, _ in _batches(model, pairs, "Reading attention")]
    return [one for some in found for one in some]


def same_tokenizer(student: Matcher, teacher: Matcher) -> None:
    """Refuse models that cut texts into different tokens."""
    if student.attention(0).tokenizer != teacher.attention(0).tokenizer:
        problem = "student and teacher cut texts into different tokens, so their attention cannot be compared"
        raise LimbeckError(f"{problem}; use models with the same tokenizer, or look at one at a time")


def layer_pairs(student: Matcher, teacher: Matcher, objective: virt | None = None) -> list[tuple[int, int]]:
    """Each layer of the student, and the teacher's that it is compared with: as the objective says that it was trained
    with; without one, in proportion to depth.
    """
    ours, theirs = student.attention(0).sizes, teacher.attention(0).sizes
    settings = objective or virt(map="spread")
    return replace(settings, layers="all", average_heads=True).attended_layers(ours, theirs)


@torch.inference_mode()
def map_distances(
    student: Matcher,
    teacher: Matcher,
    pairs: Sequence[Pair],
    objective: virt | None = None,
    lengths: Lengths | None = None,
) -> np.ndarray:
    """Eq. 4 of each pair in each of the student's layers: [pairs, layers]; pairs with an empty text are left out.

    `lengths` are the tokens of each text that the teacher reads; as many as the student by default.
    """
    same_tokenizer(student, teacher)
    layers = layer_pairs(student, teacher, objective)
    sizes = student.attention(0).sizes, teacher.attention(0).sizes
    settings = objective or virt()
    one_layer = replace(settings, layers="all", map="same", average_heads=sizes[0].heads != sizes[1].heads)
    ours, theirs = (tuple(sorted(set(each))) for each in zip(*layers, strict=True))
    rows = []
    with _reading(student, ours, None), _reading(teacher, theirs, lengths or lengths_of(student)):
        for signals, batch in _batches(student, pairs, "Comparing attention"):
            taught = _run(teacher, batch)
            targets = _targets(len(batch.queries), student.device)
            columns = [
                one_layer(_student_layer(signals, own), _teacher_layer(taught, other), targets) for own, other in layers
            ]
            rows.append(torch.stack(columns, dim=1)[_have_tokens(taught)].cpu().numpy())
    return np.concatenate(rows)


@contextmanager
def _reading(model: Matcher, layers: tuple[int, ...], lengths: Lengths | None) -> Iterator[None]:
    """Inside the block a model shows these layers, and a cross-encoder cuts each text by itself."""
    model.eval()
    model.attention_layers = layers
    if lengths is not None:
        model.read_apart(lengths)
    try:
        yield
    finally:
        model.attention_layers = None
        if lengths is not None:
            model.read_apart(None)


def _batches(model: Matcher, pairs: Sequence[Pair], label: str) -> Iterator[tuple[Signals, TextBatch]]:
    starts = range(0, len(pairs), BATCH)
    for start in track(starts, label, len(starts)):
        some = pairs[start : start + BATCH]
        rows = torch.arange(len(some)).unsqueeze(1)
        batch = TextBatch([first for first, _ in some], [second for _, second in some], rows)
        yield _run(model, batch), batch


@torch.inference_mode()
def _run(model: Matcher, batch: TextBatch) -> Signals:
    needs = model.shows & (TEXT_ATTENTION if is_virtual(model) else CROSS_ATTENTION)
    signals: Signals = model(on_device(model.prepare(batch), model.device), needs)
    return signals


def _targets(count: int, device: torch.device) -> Targets:
    """Lists of one pair each, which all count."""
    lists = torch.arange(count, device=device).unsqueeze(1)
    return Targets(
        torch.ones_like(lists, dtype=torch.bool), torch.full_like(lists, torch.nan, dtype=torch.float), lists=lists
    )


def _student_layer(signals: Signals, layer: int) -> Signals:
    """What an encoder of this one layer would show."""
    assert signals.text_attention is not None
    first, second = (_only(text, layer) for text in signals.text_attention)
    return Signals(text_attention=(first, second))


def _only(text: TextAttention, layer: int) -> TextAttention:
    at, sizes = text.layers.index(layer), AttentionSizes(1, text.sizes.heads)
    return replace(text, sizes=sizes, layers=(0,), queries=(text.queries[at],), keys=(text.keys[at],))


def _teacher_layer(signals: Signals, layer: int) -> Signals:
    found = signals.cross_attention
    assert found is not None
    at, sizes = found.layers.index(layer), AttentionSizes(1, found.sizes.heads)
    there, back = (found.to_documents[at],), (found.to_queries[at],)
    one = replace(found, sizes=sizes, layers=(0,), to_documents=there, to_queries=back)
    return Signals(cross_attention=one)


def _have_tokens(signals: Signals) -> Tensor:
    """Which pairs have a token on both sides: [pairs]."""
    found = signals.cross_attention
    assert found is not None
    return (found.query_tokens >= 0).any(-1)[:, 0] & (found.document_tokens >= 0).any(-1)[:, 0]


def _maps(model: Matcher, signals: Signals) -> list[TokenMap]:
    if signals.text_attention is not None:
        return _virtual_maps(model, *signals.text_attention)
    assert signals.cross_attention is not None
    return _own_maps(model, signals.cross_attention)


def _virtual_maps(model: Matcher, queries: TextAttention, documents: TextAttention) -> list[TokenMap]:
    rows, columns = queries.tokens >= 0, documents.tokens >= 0  # [n, M], [n, N]
    there = virtual_map(queries.queries[0], documents.keys[0], columns[:, None, None, :]).mean(1)
    back = virtual_map(documents.queries[0], queries.keys[0], rows[:, None, None, :]).mean(1)
    return [
        _token_map(model, queries.tokens[at], documents.tokens[at], there[at], back[at], virtual=True)
        for at in range(len(queries.tokens))
    ]


def _own_maps(model: Matcher, found: CrossAttention) -> list[TokenMap]:
    there, back = found.to_documents[0].mean(2), found.to_queries[0].mean(2)  # [n, 1, M, N]
    return [
        _token_map(model, found.query_tokens[at, 0], found.document_tokens[at, 0], there[at, 0], back[at, 0])
        for at in range(len(found.query_tokens))
    ]


def _token_map(
    model: Matcher, first: Tensor, second: Tensor, there: Tensor, back: Tensor, virtual: bool = False
) -> TokenMap:
    """The map without padding, its rows divided by their sums."""
    ids = [tokens[tokens >= 0].tolist() for tokens in (first, second)]
    m, n = map(len, ids)
    blocks = [block.float().cpu().numpy() for block in (there[:m, :n], back[:n, :m])]
    sums = [block.sum(axis=1, keepdims=True) for block in blocks]
    scaled = [block / np.maximum(total, np.finfo(np.float32).tiny) for block, total in zip(blocks, sums, strict=True)]
    share = 1.0 if virtual or not (m and n) else float(np.concatenate(sums).mean())
    words = [tuple(model.attention(position).spell(some)) for position, some in enumerate(ids)]
    return TokenMap(words[0], words[1], scaled[0], scaled[1], share)
