"""The tower: the computation for a single text."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from sentence_transformers.base.modules import Router, Transformer
from sentence_transformers.sentence_transformer.modules import StaticEmbedding
from torch import Tensor, nn

from limbeck.errors import LimbeckError
from limbeck.files import digest
from limbeck.matchers.attention import AttentionFacts, facts_of, most_text_tokens
from limbeck.matchers.base import PreparedBatch, TextBatch, tokeniser_digest
from limbeck.matchers.chunks import Chunks, Features, Side, each_chunk, inferred, prepare_chunks, run_chunks
from limbeck.matchers.gather import zero_of
from limbeck.matchers.splitting import USUAL
from limbeck.matchers.static import encode_many, encode_one, plain_table, tokens_read, words
from limbeck.matchers.text_attention import Watch, chunk_runner
from limbeck.matchers.token_head import TokenHead

CODE_VERSION = 1  # raise it when the same weights and texts give other vectors or scores
PROVENANCE = ("_name_or_path", "transformers_version", "architectures", "dtype", "torch_dtype")


@dataclass(frozen=True)
class TwoSides(PreparedBatch):
    """One process's share of a batch, each side tokenised separately."""

    queries: Chunks
    documents: Chunks
    lists: Tensor | None  # [own queries, K] rows of all documents
    document_count: int  # over all processes
    first_query: int
    first_document: int
    masked: list[Chunks] = field(default_factory=list)
    known_documents: Tensor | None = None  # [documents, dim] of all processes, if stored vectors replace the tower

    @property
    def tokenised(self) -> list[tuple[Chunks, int]]:
        return [(self.queries, self.first_query), (self.documents, self.first_document)]


class Tower(nn.Module):
    """A sentence-transformers model as a tower: one vector per text; sides may have separate modules (routed)."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model: Any = model
        self.single: dict[Side, Callable[[str], np.ndarray]] = {}  # shorter ways of single texts, if a runtime has them

    @property
    def dim(self) -> int:
        return int(self.model.get_embedding_dimension() or 0)

    def prompt(self, side: Side) -> str | None:
        """The prompt that the model needs before a query or a document, chosen as in `encode_query`."""
        prompts = self.model.prompts
        names = ["query"] if side == "query" else ["document", "passage", "corpus"]
        names += [self.model.default_prompt_name] if self.model.default_prompt_name else []
        return next((prompts[name] for name in names if name in prompts), None) or None

    def prepare(self, texts: Sequence[str], side: Side, chunk: int | None = None, budget: int | None = None) -> Chunks:
        """Tokenise `texts` as chunks of similar length."""
        prompt = self.prompt(side)

        def preprocess(some: list[str]) -> Features:
            return self.model.preprocess(some, prompt=prompt, task=side)

        return prepare_chunks(texts, preprocess, chunk, side, budget)

    def prepare_batch(self, batch: TextBatch, chunk: int | None = None) -> TwoSides:
        """Tokenise this process's share of a batch, both sides."""
        return TwoSides(
            queries=self.prepare(batch.own_queries, "query", chunk),
            documents=self.prepare(batch.own_texts, "document", chunk),
            lists=batch.own_lists,
            document_count=len(batch.documents),
            first_query=batch.query_slice.start or 0,
            first_document=batch.document_slice.start or 0,
        )

    def forward(self, texts: Chunks, recompute: bool = False, watch: Watch | None = None) -> Tensor:
        """The vectors [n, dim] of tokenised texts, with gradients."""
        each = chunk_runner(watch, self.transformer(texts.side), texts)
        if not texts.passes:
            return zero_of(self) + torch.zeros(0, self.dim, device=self.model.device)
        return run_chunks(texts, self._run(texts.side), recompute, each)

    def _run(self, side: Side) -> Callable[[Features], Tensor]:
        return lambda features: self.model(features, task=side)["sentence_embedding"]

    def route(self, side: Side) -> list[Any]:
        """The modules for a side's texts."""
        first, *rest = self.model
        if not isinstance(first, Router):
            return [first, *rest]
        routed: Any = first.sub_modules[side]
        return [*routed, *rest]

    def transformer(self, side: Side) -> Any:
        """The first module of a side's tower, which embeds its tokens: a Transformer or a StaticEmbedding."""
        return self.route(side)[0]

    def token_embeddings(self, side: Side) -> nn.Parameter:
        """The token embeddings [vocabulary, dim] of a side."""
        first = self.transformer(side)
        table: Any = first.embedding if isinstance(first, StaticEmbedding) else first.model.get_input_embeddings()
        return table.weight

    def words(self, side: Side) -> tuple[Any, int]:
        """The tokenizer of a side, and how many tokens it reads apart from markers and prompt."""
        first, prompt = self.transformer(side), self.prompt(side)
        if isinstance(first, StaticEmbedding):
            return words(first, prompt)
        own = first.query_length if side == "query" else first.document_length
        empty = self.model.preprocess([""], prompt=prompt, task=side)["input_ids"]
        return first.tokenizer, int(own or first.max_seq_length) - empty.shape[1]

    def attention(self, side: Side) -> AttentionFacts:
        return facts_of(self.transformer(side))

    def text_tokens(self, side: Side) -> int:
        """How many tokens of a side's texts are read, apart from marks and prompt."""
        prompt = self.prompt(side)
        return most_text_tokens(
            self.transformer(side).tokenizer, lambda texts: self.model.preprocess(texts, prompt=prompt, task=side)
        )

    def token_logits(self, masked: Chunks, head: TokenHead, recompute: bool = False) -> list[Tensor]:
        """Logits [masked tokens, vocabulary] of each chunk; `masked` has tokenised texts and the `chosen` tokens."""
        side = masked.side

        def run(features: Features) -> Tensor:
            text = {name: value for name, value in features.items() if name != "chosen"}
            states = self.model(text, task=side)["token_embeddings"]  # [n, tokens, width]
            return head(states[features["chosen"]], self.token_embeddings(side))

        return each_chunk(masked, run, recompute)

    def encode(self, texts: Sequence[str], side: Side, batch_size: int = 32) -> np.ndarray:
        """The vectors [n, dim] of texts as float32, for inference; equal to sentence-transformers' to 1e-6."""
        if isinstance(texts, str):
            raise LimbeckError("encode needs a list of texts, not one text; put it in a list")
        if not len(texts):
            return np.zeros((0, self.dim), dtype=np.float32)
        label = "Encoding queries" if side == "query" else "Encoding documents"
        table = plain_table(self.route(side))
        if table is not None:
            prompt = self.prompt(side)
            given = [prompt + text for text in texts] if prompt else texts
            rows = encode_one(table, given[0]) if len(given) == 1 else encode_many(table, given, label)
            return rows[:, : self.model.truncate_dim]
        if len(texts) == 1 and side in self.single:
            return self.single[side](texts[0])[:, : self.model.truncate_dim]
        budget = batch_size * USUAL
        found = inferred(self, texts, lambda block: self.prepare(block, side, budget=budget), self._run(side), label)
        return torch.cat(list(found))[:, : self.model.truncate_dim].numpy()

    def configuration(self) -> dict[str, Any]:
        return describe(self.model)


def describe(model: Any) -> dict[str, Any]:
    """Everything except the weights that changes a sentence-transformers model's outputs."""
    transformers = [module for module in model.modules() if isinstance(module, Transformer)]
    tables = [module for module in model.modules() if isinstance(module, StaticEmbedding)]
    expansions = [part.query_expansion for part in transformers]
    return {
        "version": CODE_VERSION,
        "modules": [repr(module) for module in model],
        "lengths": [[part.max_seq_length, part.query_length, part.document_length] for part in transformers],
        "transformers": [config_digest(part.config) for part in transformers],
        "tokenisers": [tokeniser_digest(part.tokenizer) for part in transformers],
        "prompts": {name: text for name, text in model.prompts.items() if text},
        "default_prompt": model.default_prompt_name,
        **({"expansion": expansions} if any(expansions) else {}),
        **({"static": [[tokens_read(part), tokeniser_digest(part.tokenizer)] for part in tables]} if tables else {}),
    }


def config_digest(config: Any) -> str:
    """The architecture, without keys that only describe its origin."""
    values = {name: value for name, value in config.to_dict().items() if name not in PROVENANCE}
    return digest(json.dumps(values, sort_keys=True, default=str))
