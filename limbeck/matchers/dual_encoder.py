"""A tower and a light interaction: dual encoders (Defense Eq. 2)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sentence_transformers import SentenceTransformer
from torch import Tensor

from limbeck.errors import LimbeckError
from limbeck.files import directory_atomically
from limbeck.matchers.base import SCORES, Matcher, TextBatch, distinct
from limbeck.matchers.file_manifest import write_manifest
from limbeck.matchers.gather import gather_rows
from limbeck.matchers.interactions import INTERACTIONS
from limbeck.matchers.quiet import quiet
from limbeck.matchers.safe_loading import HERE_ONLY, load_safely
from limbeck.matchers.tct import load_tct
from limbeck.matchers.token_head import TokenHead, Vocabulary
from limbeck.matchers.tower import Tower
from limbeck.signals import Signals

TOKENS = frozenset({"token_logits"})


class DualEncoder(Matcher):
    """Query and document are encoded apart; their vectors meet in a dot product or a cosine."""

    kind = "dual_encoder"

    def __init__(self, model: SentenceTransformer) -> None:
        super().__init__()
        similarity = str(model.similarity_fn_name or "cosine")
        if similarity not in INTERACTIONS:
            raise LimbeckError(f"a dual encoder with {similarity} similarity is not supported; use dot or cosine")
        self.similarity = similarity
        self.tower = Tower(model)
        self.interaction = INTERACTIONS[similarity]()

    @property
    def dim(self) -> int:
        return self.tower.dim

    def prepare(self, batch: TextBatch, chunk: int | None = None) -> dict[str, Any]:
        return self.tower.prepare_batch(batch, chunk)

    def forward(self, inputs: dict[str, Any], needs: frozenset[str] = SCORES, recompute: bool = False) -> Signals:
        signals = self._matched(inputs, needs, recompute) if needs - TOKENS else Signals()
        if needs & TOKENS:
            signals = replace(signals, token_logits=self._restored(inputs["masked"], recompute))
        return signals

    def _matched(self, inputs: dict[str, Any], needs: frozenset[str], recompute: bool) -> Signals:
        queries = self.tower(inputs["queries"], recompute)  # [B, dim]
        documents = gather_rows(self.tower(inputs["documents"], recompute), inputs["document_count"])  # [P, dim]
        lists: Tensor | None = inputs["lists"]
        return Signals(
            scores=self.interaction(queries, documents, lists) if "scores" in needs else None,
            queries=queries if "queries" in needs else None,
            documents=_per_list(documents, lists, len(queries)) if "documents" in needs else None,
        )

    def _restored(self, masked: list[dict[str, Any]], recompute: bool) -> Tensor:
        """Logits [M, vocabulary] at what was masked in each part of the batch, one part after the other."""
        assert self.token_head is not None
        chunks = [self.tower.token_logits(part, self.token_head, recompute) for part in masked]
        return torch.cat([*chain.from_iterable(chunks)])

    def add_token_head(self, seed: int) -> None:
        """One head for both sides; a side with a tower of its own still decodes by its own token embeddings."""
        transformer = self.tower.transformer("query")
        vocabulary = Vocabulary.of(transformer.tokenizer)
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            head = TokenHead(transformer.get_embedding_dimension(), self.tower.token_embeddings("query"), vocabulary)
        self.token_head = head.to(self.device)

    def encode_query(self, texts: Sequence[str], batch_size: int = 32) -> np.ndarray:
        """Query vectors [n, dim]."""
        return self.tower.encode(texts, "query", batch_size)

    def encode_document(self, texts: Sequence[str], batch_size: int = 32) -> np.ndarray:
        """Document vectors [n, dim]."""
        return self.tower.encode(texts, "document", batch_size)

    def score(self, pairs: Sequence[tuple[str, ...]], batch_size: int = 32) -> np.ndarray:
        """Each distinct text is encoded once, then pairs cost one inner product."""
        if not len(pairs):
            return np.zeros(0, dtype=np.float32)
        queries, of_query = distinct(pair[0] for pair in pairs)
        documents, of_document = distinct(" ".join(pair[1:]) for pair in pairs)
        left = torch.from_numpy(self.encode_query(queries, batch_size))
        right = torch.from_numpy(self.encode_document(documents, batch_size))
        rows, columns = torch.from_numpy(of_query), torch.from_numpy(of_document).unsqueeze(1)
        blocks = [
            self.interaction(left[rows[start : start + 8192]], right, columns[start : start + 8192]).squeeze(1)
            for start in range(0, len(pairs), 8192)
        ]
        return torch.cat(blocks).numpy()

    def configuration(self) -> dict[str, Any]:
        return self.tower.configuration() | {"similarity": self.similarity}

    def save_pretrained(self, path: str | Path) -> None:
        with quiet(), directory_atomically(path) as folder:
            self.tower.model.save_pretrained(str(folder), create_model_card=False)
            write_manifest(folder)

    @classmethod
    def from_pretrained(cls, path: str | Path, revision: str | None = None) -> DualEncoder:
        """Load a sentence-transformers folder or hub name; no code of the model's own is run."""
        return load_safely(
            path, revision, lambda folder: cls(load_tct(folder) or SentenceTransformer(folder, **HERE_ONLY))
        )


def _per_list(documents: Tensor, lists: Tensor | None, queries: int) -> Tensor:
    """Document vectors as [B, K, dim]."""
    return documents.expand(queries, -1, -1) if lists is None else documents[lists]
