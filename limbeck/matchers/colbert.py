"""ColBERT: a vector per token, and MaxSim between them (TCT-ColBERT Sec. 3.1, Eq. 3)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from sentence_transformers import MultiVectorEncoder

from limbeck.files import directory_atomically
from limbeck.matchers.base import SCORES, Matcher, TextBatch, distinct
from limbeck.matchers.file_manifest import write_manifest
from limbeck.matchers.gather import gather_rows
from limbeck.matchers.interactions.maxsim import MaxSim, TokenVectors, max_similarities
from limbeck.matchers.quiet import quiet
from limbeck.matchers.safe_loading import HERE_ONLY, load_safely
from limbeck.matchers.token_tower import TokenTower
from limbeck.signals import Signals
from limbeck.stores.ragged import Ragged


class ColBERT(Matcher):
    """Query and document are encoded apart, token by token; each query token is matched with its best partner."""

    kind = "colbert"

    def __init__(self, model: MultiVectorEncoder) -> None:
        super().__init__()
        self.similarity = str(model.similarity_fn_name)
        self.tower = TokenTower(model)
        self.interaction = MaxSim(mean=self.similarity == "meanmaxsim")

    @property
    def dim(self) -> int:
        return self.tower.dim

    def prepare(self, batch: TextBatch, chunk: int | None = None) -> dict[str, Any]:
        return self.tower.prepare_batch(batch, chunk)

    def forward(self, inputs: dict[str, Any], needs: frozenset[str] = SCORES, recompute: bool = False) -> Signals:
        queries = self.tower.token_vectors(inputs["queries"], recompute)
        documents = self._all_documents(inputs, recompute)
        return Signals(scores=self.interaction(queries, documents, inputs["lists"]))

    def _all_documents(self, inputs: dict[str, Any], recompute: bool) -> TokenVectors:
        """The token vectors of all processes' documents."""
        if not (dist.is_available() and dist.is_initialized()) or dist.get_world_size() == 1:
            return self.tower.token_vectors(inputs["documents"], recompute)
        width = self.tower.longest("document")  # the same in every process
        own = self.tower.token_vectors(inputs["documents"], recompute, width)
        rows = torch.cat([own.vectors.float().flatten(1), own.mask.float()], dim=1)
        everyone = gather_rows(rows, inputs["document_count"])
        vectors = everyone[:, :-width].view(-1, width, self.dim)
        return TokenVectors(vectors, everyone[:, -width:].detach() > 0.5)

    def encode_query(self, texts: Sequence[str], batch_size: int = 32) -> Ragged:
        """The token vectors of queries."""
        return self.tower.encode_tokens(texts, "query", batch_size)

    def encode_document(self, texts: Sequence[str], batch_size: int = 32) -> Ragged:
        """The token vectors of documents."""
        return self.tower.encode_tokens(texts, "document", batch_size)

    def match(self, queries: Ragged, documents: Ragged) -> np.ndarray:
        """The scores of all pairs of encoded texts: [queries, documents]."""
        return max_similarities(queries, documents, self.interaction.mean)

    def score(self, pairs: Sequence[tuple[str, ...]], batch_size: int = 32) -> np.ndarray:
        """Each distinct text is encoded once."""
        if not len(pairs):
            return np.zeros(0, dtype=np.float32)
        queries, rows = distinct(pair[0] for pair in pairs)
        documents, columns = distinct(" ".join(pair[1:]) for pair in pairs)
        left, right = self.encode_query(queries, batch_size), self.encode_document(documents, batch_size)
        scores = np.empty(len(pairs), dtype=np.float32)
        order = np.argsort(rows, kind="stable")
        for row, some in groupby(order.tolist(), key=lambda pair: rows[pair]):
            where = np.fromiter(some, dtype=np.int64)
            scores[where] = self.match(left.take(np.array([row])), right.take(columns[where]))[0]
        return scores

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
