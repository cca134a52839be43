"""ColBERT: a vector per token, and MaxSim between them (TCT-ColBERT Sec. 3.1, Eq. 3)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from sentence_transformers import MultiVectorEncoder

from limbeck.files import directory_atomically
from limbeck.matchers.base import SCORES, TextBatch
from limbeck.matchers.encoding import Encoding, TokenVectors
from limbeck.matchers.encoding_matcher import EncodingMatcher
from limbeck.matchers.file_manifest import write_manifest
from limbeck.matchers.gather import gather_rows
from limbeck.matchers.interactions import Interaction, MaxSim, MeanMaxSim
from limbeck.matchers.quiet import quiet
from limbeck.matchers.safe_loading import HERE_ONLY, load_safely
from limbeck.matchers.token_tower import TokenTower
from limbeck.matchers.tower import TwoSides
from limbeck.signals import Signals
from limbeck.stores.ragged import Ragged


class ColBERT(EncodingMatcher):
    """Query and document are encoded apart, token by token; each query token is matched with its best partner."""

    kind = "colbert"

    def __init__(self, model: MultiVectorEncoder) -> None:
        super().__init__()
        self.similarity = str(model.similarity_fn_name)
        self.tower = TokenTower(model)
        self._interaction = MeanMaxSim() if self.similarity == MeanMaxSim.name else MaxSim()

    @property
    def interaction(self) -> Interaction:
        return self._interaction

    def encoding(self, position: int) -> Encoding:
        return Encoding(self.dim, "ragged")

    @property
    def dim(self) -> int:
        return self.tower.dim

    def prepare(self, batch: TextBatch, chunk: int | None = None) -> TwoSides:
        return self.tower.prepare_batch(batch, chunk)

    def forward(self, inputs: TwoSides, needs: frozenset[str] = SCORES, recompute: bool = False) -> Signals:
        queries = self.tower.token_vectors(inputs.queries, recompute)
        documents = self._all_documents(inputs, recompute)
        prepared = [self.interaction.prepare(text, position) for position, text in enumerate((queries, documents))]
        return Signals(scores=self.interaction(prepared, inputs.lists))

    def _all_documents(self, inputs: TwoSides, recompute: bool) -> TokenVectors:
        """The token vectors of all processes' documents."""
        if not (dist.is_available() and dist.is_initialized()) or dist.get_world_size() == 1:
            return self.tower.token_vectors(inputs.documents, recompute)
        width = self.tower.longest("document")  # the same in every process
        own = self.tower.token_vectors(inputs.documents, recompute, width)
        rows = torch.cat([own.vectors.float().flatten(1), own.mask.float()], dim=1)
        everyone = gather_rows(rows, inputs.document_count)
        vectors = everyone[:, :-width].view(-1, width, self.dim)
        return TokenVectors(vectors, everyone[:, -width:].detach() > 0.5)

    def encode(self, texts: Sequence[str], position: int, batch_size: int = 32) -> Ragged:
        return self.tower.encode_tokens(texts, "document" if position else "query", batch_size)

    def configuration(self) -> dict[str, Any]:
        return self.tower.configuration() | {"similarity": self.similarity}

    def save_pretrained(self, path: str | Path) -> None:
        with quiet(), directory_atomically(path) as folder:
            self.tower.model.save_pretrained(str(folder), create_model_card=False)
            write_manifest(folder)

    @classmethod
    def from_pretrained(cls, path: str | Path, revision: str | None = None) -> ColBERT:
        """Load a sentence-transformers, PyLate or Stanford ColBERT folder or hub name."""
        return load_safely(path, revision, lambda folder: cls(MultiVectorEncoder(folder, **HERE_ONLY)))
