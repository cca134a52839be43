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
from sentence_transformers.base.modules import Dense, Router
from torch import Tensor, nn

from limbeck.errors import LimbeckError
from limbeck.files import directory_atomically
from limbeck.matchers.base import SCORES, TextBatch
from limbeck.matchers.chunks import Chunks, Side
from limbeck.matchers.encoding import Encoding
from limbeck.matchers.encoding_matcher import EncodingMatcher
from limbeck.matchers.file_manifest import write_manifest
from limbeck.matchers.gather import gather_rows
from limbeck.matchers.interactions import Cosine, Dot, Interaction
from limbeck.matchers.quiet import quiet
from limbeck.matchers.safe_loading import HERE_ONLY, load_safely
from limbeck.matchers.tct import load_tct
from limbeck.matchers.token_head import TOKEN_HEAD, TokenHead, Vocabulary
from limbeck.matchers.tower import Tower, TwoSides
from limbeck.signals import SIGNALS, Signals

TOKENS = frozenset({"token_logits"})
SIMILARITIES: dict[str, type[Interaction]] = {kind.name: kind for kind in (Dot, Cosine)}
SIDES: tuple[Side, Side] = ("query", "document")


class DualEncoder(EncodingMatcher):
    """Query and document are encoded apart; their vectors meet in a dot product or a cosine."""

    kind = "dual_encoder"
    shows = frozenset(SIGNALS)

    def __init__(self, model: SentenceTransformer) -> None:
        super().__init__()
        similarity = str(model.similarity_fn_name or "cosine")
        if similarity not in SIMILARITIES:
            raise LimbeckError(f"a dual encoder with {similarity} similarity is not supported; use dot or cosine")
        self.similarity = similarity
        self.tower = Tower(model)
        self._interaction = SIMILARITIES[similarity]()

    @property
    def interaction(self) -> Interaction:
        return self._interaction

    def encoding(self, position: int) -> Encoding:
        return Encoding(self.dim)

    @property
    def dim(self) -> int:
        return self.tower.dim

    def prepare(self, batch: TextBatch, chunk: int | None = None) -> TwoSides:
        return self.tower.prepare_batch(batch, chunk)

    def forward(self, inputs: TwoSides, needs: frozenset[str] = SCORES, recompute: bool = False) -> Signals:
        signals = self._matched(inputs, needs, recompute) if needs - TOKENS else Signals()
        if needs & TOKENS:
            signals = replace(signals, token_logits=self._restored(inputs.masked, recompute))
        return signals

    def _matched(self, inputs: TwoSides, needs: frozenset[str], recompute: bool) -> Signals:
        queries = self.tower(inputs.queries, recompute)  # [B, dim]
        documents = gather_rows(self.tower(inputs.documents, recompute), inputs.document_count)  # [P, dim]
        lists = inputs.lists
        return Signals(
            scores=self._scores(queries, documents, lists) if "scores" in needs else None,
            queries=queries if "queries" in needs else None,
            documents=documents if "documents" in needs else None,
        )

    def _scores(self, queries: Tensor, documents: Tensor, lists: Tensor | None) -> Tensor:
        with torch.autocast(queries.device.type, enabled=False):
            prepared = [self.interaction.prepare(text, position) for position, text in enumerate((queries, documents))]
        return self.interaction(prepared, lists)

    def _restored(self, masked: list[Chunks], recompute: bool) -> Tensor:
        """Logits [M, vocabulary] at what was masked in each part of the batch, one part after the other."""
        head = self._token_head
        chunks = [self.tower.token_logits(part, head, recompute) for part in masked]
        return torch.cat([*chain.from_iterable(chunks)])

    def add_token_head(self, seed: int) -> None:
        """One head for both sides; a side with a tower of its own still decodes by its own token embeddings."""
        transformer = self.tower.transformer("query")
        vocabulary = Vocabulary.of(transformer.tokenizer)
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            head = TokenHead(transformer.get_embedding_dimension(), self.tower.token_embeddings("query"), vocabulary)
        self.heads[TOKEN_HEAD] = head.to(self.device)

    @property
    def _token_head(self) -> TokenHead:
        head = self.heads[TOKEN_HEAD]
        assert isinstance(head, TokenHead)
        return head

    @property
    def vocabulary(self) -> Vocabulary:
        return self._token_head.vocabulary

    def append_projection(self, projection: nn.Linear) -> None:
        if isinstance(self.tower.model[0], Router):
            raise LimbeckError("a projection cannot be added to two towers at once; use separate: false")
        bias = projection.bias.detach().clone() if projection.bias is not None else None
        dense = Dense(
            projection.in_features,
            projection.out_features,
            bias=bias is not None,
            activation_function=nn.Identity(),
            init_weight=projection.weight.detach().clone(),
            init_bias=bias,
        )
        self.tower.model.append(dense.to(self.device))

    def encode(self, texts: Sequence[str], position: int, batch_size: int = 32) -> np.ndarray:
        return self.tower.encode(texts, SIDES[position], batch_size)

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
