"""A tower with a vector for every token, for ColBERT."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from limbeck.errors import LimbeckError
from limbeck.matchers.chunks import BLOCK, Chunks, Features, Side, run_chunks
from limbeck.matchers.encoding import TokenVectors
from limbeck.matchers.gather import zero_of
from limbeck.matchers.text_attention import Watch, chunk_runner
from limbeck.matchers.tower import Tower
from limbeck.progress import progress
from limbeck.stores.ragged import Ragged


class TokenTower(Tower):
    """A sentence-transformers multi-vector model as a tower."""

    def token_vectors(self, texts: Chunks, recompute: bool = False, watch: Watch | None = None) -> TokenVectors:
        """The vectors of tokenised texts, with gradients: [n, tokens, dim], padded to the longest."""

        def run(features: Features) -> TokenVectors:
            found = self.model(features, task=texts.side)
            return TokenVectors(found["token_embeddings"], found["attention_mask"].bool())

        each = chunk_runner(watch, self.transformer(texts.side), texts)
        if not texts.passes:
            vectors = zero_of(self) + torch.zeros(0, 0, self.dim, device=self.model.device)
            return TokenVectors(vectors, torch.zeros(0, 0, dtype=torch.bool, device=vectors.device))
        return run_chunks(texts, run, recompute, each)

    def longest(self, side: Side) -> int:
        """The maximum number of tokens of a side."""
        part: Any = self.transformer(side)
        own = part.query_length if side == "query" else part.document_length
        expanded = part.query_expansion["length"] if side == "query" and part.query_expansion else None
        return int(expanded or own or part.max_seq_length)

    def encode_tokens(self, texts: Sequence[str], side: Side, batch_size: int = 32) -> Ragged:
        """The token vectors of texts as float32, for inference; equal to sentence-transformers' output."""
        if isinstance(texts, str):
            raise LimbeckError("encode needs a list of texts, not one text; put it in a list")
        encode = self.model.encode_query if side == "query" else self.model.encode_document
        parts: list[np.ndarray] = []
        with progress("Encoding queries" if side == "query" else "Encoding documents", len(texts)) as advance:
            for start in range(0, len(texts), BLOCK):
                block = list(texts[start : start + BLOCK])
                parts += encode(block, batch_size=batch_size, show_progress_bar=False, convert_to_numpy=True)
                advance(len(block))
        return Ragged.from_list(parts) if parts else Ragged(np.zeros((0, self.dim), np.float32), np.zeros(0, np.int64))
