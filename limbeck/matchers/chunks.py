"""Reduce padding: texts are sorted by length and run through the model in chunks of similar length.

A batch for distillation contains the distinct documents of many lists. The encoder handles them independently, so
they can be encoded in any order and grouping. Sorting inside the step removes padding without changing which queries
are in a batch; grouping whole queries by length would change that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Literal, TypeVar

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from limbeck.matchers.device import on_device
from limbeck.matchers.encoding import AnyEncoded, TokenVectors, join_texts, take_texts
from limbeck.matchers.splitting import split_by_length
from limbeck.progress import progress

T = TypeVar("T")
Side = Literal["query", "document"]
SIDES: tuple[Side, Side] = ("query", "document")
Features = dict[str, Any]  # output of a tokeniser, input of a model
EachChunk = Callable[..., list[Any]]  # `each_chunk`, or a function with the same arguments

BLOCK = 512  # texts that are sorted together for inference


@dataclass(frozen=True)
class Chunks:
    """Texts that are tokenised, sorted by length and split into passes of a model."""

    passes: list[Features]
    restore: Tensor  # [texts] puts the rows of all passes back in the order of the texts
    side: Side = "query"

    def __len__(self) -> int:
        return len(self.restore)


def prepare_chunks(
    texts: Sequence[Any],
    preprocess: Callable[[list[Any]], Features],
    limit: int | None = None,
    side: Side = "query",
    budget: int | None = None,
) -> Chunks:
    """Tokenise `texts` once and split the result into chunks; `limit` and `budget` as in `split_by_length`."""
    if not texts:
        return Chunks([], torch.empty(0, dtype=torch.long), side)
    features = preprocess(list(texts))
    if "offsets" in features:  # tokens one after the other, without padding
        return Chunks([features], torch.arange(len(texts)), side)
    real_tokens = features["attention_mask"].bool()
    if "query_expansion_positions" in features:  # ColBERT's [MASK] tokens count even if they are not attended to
        real_tokens = real_tokens | features["query_expansion_positions"].bool()
    lengths = real_tokens.sum(dim=1)
    order = torch.argsort(lengths, stable=True)
    padded_left = bool((~real_tokens[:, 0]).any())
    passes = []
    for rows in split_by_length(lengths[order].tolist(), limit, budget=budget):
        width = int(lengths[order[rows]].max())
        real = slice(-width, None) if padded_left else slice(width)
        passes.append(
            {
                name: value[order[rows]][:, real] if isinstance(value, Tensor) and value.dim() == 2 else value
                for name, value in features.items()
            }
        )
    return Chunks(passes, torch.argsort(order), side)


def run_chunks(
    chunks: Chunks, run: Callable[[Features], AnyEncoded], recompute: bool = False, each: EachChunk | None = None
) -> AnyEncoded:
    """Apply `run` to each chunk with `each`, by default `each_chunk`, and put the rows in the order of the texts."""
    return take_texts(join_texts((each or each_chunk)(chunks, run, recompute)), chunks.restore)


def each_chunk(chunks: Chunks, run: Callable[[Features], T], recompute: bool = False) -> list[T]:
    """The results of `run` for all chunks, in order."""

    def fresh(chunk: Features) -> T:
        return run(dict(chunk))  # a copy for every pass: modules add their results to their input

    if recompute and torch.is_grad_enabled():
        return [checkpoint(fresh, chunk, use_reentrant=False) for chunk in chunks.passes]
    return [fresh(chunk) for chunk in chunks.passes]


def inferred(
    model: nn.Module,
    texts: Sequence[Any],
    prepare: Callable[[list[Any]], Chunks],
    run: Callable[[Features], AnyEncoded],
    label: str,
) -> Iterator[AnyEncoded]:
    """The results of `run` for the chunks that `prepare` makes of each block of texts, in order, without gradients.

    Sorted by tokens: sorting by characters, as sentence-transformers does, pads more (`benchmarks.padding`).
    """
    model.eval()
    device = next(model.parameters()).device
    with progress(label, len(texts)) as advance:
        for start in range(0, len(texts), BLOCK):
            block = list(texts[start : start + BLOCK])

            def told(chunk: Features) -> AnyEncoded:
                rows = run(chunk)
                advance(len(rows.mask if isinstance(rows, TokenVectors) else rows))
                return rows

            with torch.inference_mode():
                found = run_chunks(on_device(prepare(block), device), told)
            yield _as_float32(found)


def _as_float32(found: AnyEncoded) -> AnyEncoded:
    """On the CPU."""
    if isinstance(found, TokenVectors):
        return TokenVectors(found.vectors.float().cpu(), found.mask.cpu())  # type: ignore[return-value]
    return found.float().cpu()  # type: ignore[return-value]


def texts_of_chunks(chunks: Chunks) -> list[list[int]]:
    """For each chunk, the index of each row's text."""
    order = torch.argsort(chunks.restore).tolist()
    sizes = [len(chunk["offsets"] if "offsets" in chunk else chunk["attention_mask"]) for chunk in chunks.passes]
    return [order[end - size : end] for size, end in zip(sizes, accumulate(sizes), strict=True)]
