"""A tower with a vector for every token, for ColBERT."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from limbeck.errors import LimbeckError
from limbeck.matchers.chunks import Chunks, Features, Side, inferred, run_chunks
from limbeck.matchers.encoding import Encoding, TokenVectors, as_stored
from limbeck.matchers.gather import zero_of
from limbeck.matchers.splitting import USUAL
from limbeck.matchers.text_attention import Watch, chunk_runner
from limbeck.matchers.tower import Tower
from limbeck.stores.ragged import Ragged


class TokenTower(Tower):
    """A sentence-transformers multi-vector model as a tower."""

    def token_vectors(self, texts: Chunks, recompute: bool = False, watch: Watch | None = None) -> TokenVectors:
        """The vectors of tokenised texts, with gradients: [n, tokens, dim], padded to the longest."""
        each = chunk_runner(watch, self.transformer(texts.side), texts)
        if not texts.passes:
            vectors = zero_of(self) + torch.zeros(0, 0, self.dim, device=self.model.device)
            return TokenVectors(vectors, torch.zeros(0, 0, dtype=torch.bool, device=vectors.device))
        return run_chunks(texts, self._run_tokens(texts.side), recompute, each)

    def _run_tokens(self, side: Side) -> Callable[[Features], TokenVectors]:
        def run(features: Features) -> TokenVectors:
            found = self.model(features, task=side)
            return TokenVectors(found["token_embeddings"], found["attention_mask"].bool())

        return run

    def longest(self, side: Side) -> int:
        """The maximum number of tokens of a side."""
        part: Any = self.transformer(side)
        own = part.query_length if side == "query" else part.document_length
        expanded = part.query_expansion["length"] if side == "query" and part.query_expansion else None
        return int(expanded or own or part.max_seq_length)

    def encode_tokens(self, texts: Sequence[str], side: Side, batch_size: int = 32) -> Ragged:
        """The token vectors of texts as float32, for inference; equal to sentence-transformers' to 1e-6."""
        if isinstance(texts, str):
            raise LimbeckError("encode needs a list of texts, not one text; put it in a list")
        label = "Encoding queries" if side == "query" else "Encoding documents"
        budget = batch_size * USUAL
        found = inferred(
            self, texts, lambda block: self.prepare(block, side, budget=budget), self._run_tokens(side), label
        )
        parts: list[Any] = list(map(as_stored, found))
        return Ragged.join(parts or [Encoding(self.dim, "ragged").nothing()])
