"""ColBERT: a vector per token, and MaxSim between them (TCT-ColBERT Sec. 3.1, Eq. 3)."""

from __future__ import annotations

import string
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import Field
from sentence_transformers import MultiVectorEncoder
from sentence_transformers.base.modules import Normalize
from sentence_transformers.multi_vector_encoder.modules import MultiVectorMask
from torch import nn

from limbeck.errors import LimbeckError
from limbeck.file_list import write_list
from limbeck.files import directory_atomically
from limbeck.matchers.attention import AttentionFacts
from limbeck.matchers.base import SCORES, TextBatch
from limbeck.matchers.chunks import SIDES
from limbeck.matchers.config import MatcherConfig, architecture
from limbeck.matchers.encoding import Encoding
from limbeck.matchers.encoding_matcher import EncodingMatcher
from limbeck.matchers.folder_checks import read_settings
from limbeck.matchers.gather import gather_texts
from limbeck.matchers.interactions import Interaction, MaxSim, MeanMaxSim
from limbeck.matchers.own_kind import mark_kind, own_facts, stored_interaction
from limbeck.matchers.parts import keep_whole, projection, side_lengths, start_transformer
from limbeck.matchers.quiet import quiet
from limbeck.matchers.safe_loading import HERE_ONLY, load_safely
from limbeck.matchers.starts import go_on, learnt_parts, start_of
from limbeck.matchers.text_attention import Watch
from limbeck.matchers.token_tower import TokenTower
from limbeck.matchers.tower import TwoSides
from limbeck.signals import TEXT_ATTENTION, Signals
from limbeck.stores.ragged import Ragged

MARKERS = {"query": "[unused0]", "document": "[unused1]"}  # word pieces that no text has, as in Stanford's


class ColBERTConfig(MatcherConfig):
    """One vector per token."""

    kind: Literal["colbert"] = "colbert"
    dim: int = Field(128, ge=1, le=65536, description="numbers in a token's vector")
    similarity: Literal["maxsim", "meanmaxsim"] = Field(
        "maxsim", description="maxsim, the sum over query tokens, or meanmaxsim, their mean"
    )


@architecture
class ColBERT(EncodingMatcher):
    """Query and document are encoded separately, token by token; each query token is matched with its best partner."""

    kind = "colbert"
    config_type = ColBERTConfig
    shows = SCORES | TEXT_ATTENTION
    model_types = ("MultiVectorEncoder", "ColBERT")  # the second name is PyLate's

    def __init__(self, model: MultiVectorEncoder, interaction: Interaction | None = None) -> None:
        super().__init__()
        self.similarity = str(model.similarity_fn_name)
        self.tower = TokenTower(model)
        self._interaction = interaction or (MeanMaxSim() if self.similarity == MeanMaxSim.name else MaxSim())

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
        watch = Watch(self.attention_layers) if needs & TEXT_ATTENTION else None
        queries = self.tower.token_vectors(inputs.queries, recompute, watch)
        own = self.tower.token_vectors(inputs.documents, recompute, watch)
        documents = gather_texts(own, inputs.document_count, self.tower.longest("document"))
        prepared = [self.interaction.prepare(text, position) for position, text in enumerate((queries, documents))]
        return Signals(
            scores=self.interaction(prepared, inputs.lists),
            text_attention=watch.of_batch(inputs.document_count) if watch is not None else None,
        )

    def attention(self, position: int) -> AttentionFacts:
        return self.tower.attention(SIDES[position])

    def text_tokens(self, position: int) -> int:
        return self.tower.text_tokens(SIDES[position])

    def encoder_modules(self, position: int) -> list[nn.Module]:
        return self.tower.route(SIDES[position])

    def encode(self, texts: Sequence[str], position: int, batch_size: int = 32) -> Ragged:
        return self.tower.encode_tokens(texts, "document" if position else "query", batch_size)

    @property
    def prompts(self) -> dict[str, str]:
        return {side: self.tower.prompt(side) or "" for side in SIDES}

    @classmethod
    def build(cls, config: Any, local: Any) -> ColBERT:
        return cls(_model(local), cls.make_interaction(config))

    @classmethod
    def make_interaction(cls, config: Any) -> Interaction | None:
        """The interaction that replaces MaxSim, in a derived architecture."""
        return None

    @classmethod
    def reads(cls, folder: Path) -> bool:
        return "HF_ColBERT" in (read_settings(folder / "config.json").get("architectures") or [])  # Stanford's

    def configuration(self) -> dict[str, Any]:
        return self.tower.configuration() | {"similarity": self.similarity} | own_facts(self)

    def save_pretrained(self, path: str | Path) -> None:
        with quiet(), directory_atomically(path) as folder:
            self.tower.model.save_pretrained(str(folder), create_model_card=False)
            mark_kind(folder, self)
            write_list(folder)

    @classmethod
    def from_pretrained(cls, path: str | Path, revision: str | None = None) -> ColBERT:
        """Load a sentence-transformers, PyLate or Stanford ColBERT folder or hub name."""

        def make(folder: str) -> ColBERT:
            return cls(MultiVectorEncoder(folder, device="cpu", **HERE_ONLY), stored_interaction(folder))

        return load_safely(path, revision, make)


def _model(config: ColBERTConfig) -> MultiVectorEncoder:
    """Tokens, a projection, unit length; punctuation in documents does not count (TCT-ColBERT Sec. 3.1)."""
    transformer = start_transformer(start_of(config), side_lengths(config))
    tokenizer: Any = transformer.tokenizer
    if tokenizer.mask_token is None:
        raise LimbeckError(
            f"{config.init_from}: has no [MASK] token to fill queries with; start a colbert from another model"
        )
    transformer.query_expansion = {"strategy": "fixed", "attend": False, "length": config.query_length}
    fresh = projection(transformer.get_embedding_dimension(), config.dim, module_input_name="token_embeddings")
    learnt: list[Any] = learnt_parts(config)
    kept = bool(learnt) and learnt[-1].out_features == config.dim
    projections = learnt if kept else go_on(config.init_from, [fresh], learnt)
    return MultiVectorEncoder(
        modules=[
            transformer,
            *projections,
            MultiVectorMask(skiplist_words=_punctuation(tokenizer)),
            Normalize(module_input_name="token_embeddings"),
        ],
        prompts=_markers(tokenizer),
        similarity_fn_name=config.similarity,
        device="cpu",
    )


def _markers(tokenizer: Any) -> dict[str, str]:
    """The markers of queries and documents: a spare word piece each, or plain text if the vocabulary has none."""
    vocabulary = tokenizer.get_vocab()
    if not all(marker in vocabulary for marker in MARKERS.values()):
        return {"query": "[Q] ", "document": "[D] "}
    keep_whole(tokenizer, MARKERS)
    return MARKERS


def _punctuation(tokenizer: Any) -> list[str]:
    vocabulary = tokenizer.get_vocab()
    return [mark for mark in string.punctuation if mark in vocabulary]
