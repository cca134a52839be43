"""Late interaction: every query token finds its best document token (TCT-ColBERT Eq. 3)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from limbeck.matchers.encoding import Encoded, TokenVectors
from limbeck.matchers.interactions.base import Interaction, Prepared, Search, interaction
from limbeck.stores.ragged import Ragged

NOTHING = -1e9  # the score of a document without valid tokens, as in sentence-transformers
_SIMILARITIES = 2**24  # in memory at a time: 64 MB
_TOKENS, _QUERIES = 2048, 8  # compared at a time in inference: their similarities fit into the processor's cache


@interaction
class MaxSim(Interaction):
    """s(q, d) = sum_i max_j <q_i, d_j>.

    In training all pairs of the batch are scored, even those outside the lists: compared with the encoders this is
    cheap. Memory holds the similarities of all query tokens with one slice of the documents, and for the backward pass
    only the index of the best document token.
    """

    name = "maxsim"
    search: ClassVar[Search | None] = "maxsim"
    mean: ClassVar[bool] = False

    def __init__(self, at_once: int = _SIMILARITIES) -> None:
        super().__init__()
        self.at_once = at_once

    def prepare(self, encoded: Encoded, position: int) -> Prepared:
        assert isinstance(encoded, TokenVectors)
        return encoded.vectors.float(), encoded.mask

    def score(self, texts: Sequence[Prepared]) -> Tensor:
        (left, counts), (right, mask) = texts  # [pairs, query tokens, dim], [pairs, document tokens, dim]
        similar = left @ right.transpose(1, 2)
        best = similar.masked_fill(~mask.unsqueeze(1), torch.finfo(similar.dtype).min).amax(dim=-1)
        scores = (best * counts).sum(dim=1)
        return self._finished(scores, mask.any(dim=1), counts.sum(dim=1)).unsqueeze(-1)

    def forward(self, texts: Sequence[Prepared], lists: Tensor | None) -> Tensor:
        (queries, counts), (documents, mask) = texts
        with torch.autocast(queries.device.type, enabled=False):
            found = _BestMatch.apply(queries, documents, mask, self.at_once)  # [B, tokens, P]
            scores = torch.where(counts.unsqueeze(-1), found, 0.0).sum(dim=1)  # [B, P]
            scores = self._finished(scores, mask.any(dim=1), counts.sum(dim=1, keepdim=True))
        return scores if lists is None else scores.gather(1, lists)

    def _finished(self, scores: Tensor, filled: Tensor, tokens: Tensor) -> Tensor:
        """Sums over query tokens as scores; a document without tokens ranks below all others."""
        scores = torch.where(filled, scores, NOTHING)
        return scores / tokens if self.mean else scores

    def match(self, queries: Ragged, documents: Ragged) -> np.ndarray:
        """The scores of all pairs of encoded texts: [queries, documents]."""
        return max_similarities(queries, documents, self.mean)


@interaction
class MeanMaxSim(MaxSim):
    """s(q, d) = mean_i max_j <q_i, d_j>: the average over the query's tokens instead of the sum."""

    name = "meanmaxsim"
    mean: ClassVar[bool] = True


class _BestMatch(torch.autograd.Function):
    """max_j <q_i, d_j> for all queries, query tokens and documents, one slice of the documents at a time."""

    @staticmethod
    def forward(ctx: Any, queries: Tensor, documents: Tensor, mask: Tensor, at_once: int) -> Tensor:
        rows = queries.flatten(0, 1)  # [B * tokens, dim]
        best = rows.new_empty(len(rows), len(documents))
        where = torch.empty(best.shape, dtype=torch.int64, device=rows.device) if any(ctx.needs_input_grad) else None
        for some in _slices(len(documents), documents.shape[1] * len(rows), at_once):
            similar = rows @ documents[some].flatten(0, 1).T
            similar = similar.view(len(rows), -1, documents.shape[1])  # [B * tokens, documents of the slice, tokens]
            similar.masked_fill_(~mask[some], torch.finfo(similar.dtype).min)
            if where is None:
                best[:, some] = similar.amax(dim=-1)
            else:
                best[:, some], where[:, some] = similar.max(dim=-1)
        if where is not None:
            ctx.save_for_backward(rows, documents, where)
            ctx.shape, ctx.at_once = queries.shape, at_once
        return best.view(*queries.shape[:2], len(documents))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, None, None]:
        rows, documents, where = ctx.saved_tensors
        gradient = gradients[0].reshape(where.shape)
        of_rows, of_documents = torch.zeros_like(rows), torch.empty_like(documents)
        for some in _slices(len(documents), documents.shape[1] * len(rows), ctx.at_once):
            block = documents[some]
            chosen = gradient.new_zeros(len(rows), len(block), documents.shape[1])
            chosen.scatter_(2, where[:, some].unsqueeze(-1), gradient[:, some].unsqueeze(-1))
            flat = chosen.flatten(1)  # [B * tokens, tokens of the slice]: the gradient where a token was best, else 0
            of_rows += flat @ block.flatten(0, 1)
            of_documents[some] = (flat.T @ rows).view_as(block)
        return of_rows.view(ctx.shape), of_documents, None, None


def _slices(count: int, cost: int, at_once: int) -> Iterator[slice]:
    step = max(1, at_once // max(1, cost))
    for start in range(0, count, step):
        yield slice(start, start + step)


def max_similarities(queries: Ragged, documents: Ragged, mean: bool = False) -> np.ndarray:
    """MaxSim of every query with every document, for inference: [queries, documents] float32.

    Texts are concatenated without padding, so a block of documents is one matrix product and one segmented max.
    """
    scores = np.full((len(queries), len(documents)), NOTHING, dtype=np.float32)
    filled = np.flatnonzero(documents.lengths)
    starts, ends = documents.offsets[filled], documents.offsets[filled + 1]
    groups = [slice(first, min(first + _QUERIES, len(queries))) for first in range(0, len(queries), _QUERIES)]
    first = 0
    while first < len(filled):
        last = max(first + 1, int(np.searchsorted(ends, starts[first] + _TOKENS, side="right")))
        block = documents.vectors[starts[first] : ends[last - 1]]  # [tokens, dim]
        for some in groups:
            begin, end = queries.offsets[some.start], queries.offsets[some.stop]
            similar = block @ queries.vectors[begin:end].T  # [tokens, query tokens]
            best = np.maximum.reduceat(similar, starts[first:last] - starts[first], axis=0)  # [documents, query tokens]
            scores[some, filled[first:last]] = np.add.reduceat(best, queries.offsets[some] - begin, axis=1).T
        first = last
    return scores / queries.lengths[:, None].astype(np.float32) if mean else scores
