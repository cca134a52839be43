"""Queries that a document might answer, sampled from a seq2seq model (doc2query-T5: Nogueira and Lin, 2019).

A sample depends only on the seed, the document's id and its own number, not on the rest of the batch: token t of a
query is argmax over the k likeliest of log p + g_t, with Gumbel noise g that belongs to the query. This draws from the
softmax over those k.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import LogitsProcessor, LogitsProcessorList

from limbeck.generation.draws import own_draws
from limbeck.generation.seq2seq import Seq2Seq

CODE_VERSION = 1  # raise it when the same weights, texts and settings give other queries


@dataclass(frozen=True)
class Sampling:
    """How queries are sampled; the defaults are doc2query-T5's, except for the number of queries."""

    per_document: int = 5
    top_k: int = 10
    max_length: int = 64  # maximum tokens of a query
    document_length: int = 512  # maximum tokens of a document
    seed: int = 0


class QueryGenerator(Seq2Seq):
    """A seq2seq model that writes queries."""

    def identity(self) -> dict[str, Any]:
        """Everything about the model that changes its output."""
        return {**super().identity(), "code": CODE_VERSION}

    def generate(self, ids: Sequence[str], texts: Sequence[str], how: Sampling) -> list[list[str]]:
        """`per_document` queries for each document; empty ones are left out."""
        tokens, mask = self.tokens(texts, how.document_length)
        states = self.encode(tokens, mask).repeat_interleave(how.per_document, dim=0)
        noise = LogitsProcessorList([NoisyTopK(self._noise(ids, how))])
        queries = self.decode(states, mask.repeat_interleave(how.per_document, dim=0), how.max_length, noise)
        lists = [queries[start : start + how.per_document] for start in range(0, len(queries), how.per_document)]
        return [[query for query in some if query] for some in lists]

    def _noise(self, ids: Sequence[str], how: Sampling) -> Tensor:
        """Gumbel noise [documents * per_document, max_length, top_k]."""
        draws = [own_draws(how.seed, key, number) for key in ids for number in range(how.per_document)]
        noise = np.stack([own.gumbel(size=(how.max_length, how.top_k)) for own in draws])
        return torch.from_numpy(noise.astype(np.float32)).to(self.model.device)


class NoisyTopK(LogitsProcessor):
    """Adds a row's own noise to its likeliest tokens and excludes all others; the greedy choice is then a sample."""

    def __init__(self, noise: Tensor) -> None:
        self._noise = noise  # [rows, steps, top_k]
        self._start: int | None = None

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        if self._start is None:
            self._start = input_ids.shape[1]
        likeliest = scores.topk(min(self._noise.shape[2], scores.shape[1]), dim=1)  # [rows, top_k]
        noise = self._noise[:, input_ids.shape[1] - self._start, : likeliest.values.shape[1]]
        return torch.full_like(scores, -torch.inf).scatter(1, likeliest.indices, likeliest.values + noise)
