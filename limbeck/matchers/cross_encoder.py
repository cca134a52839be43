"""The cross-encoder: both texts in one pass, nothing stored ahead (Defense Sec. 2)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from pydantic import Field, model_validator
from sentence_transformers import CrossEncoder as STCrossEncoder
from sentence_transformers.base.modules import Dense
from torch import Tensor, nn

from limbeck.file_list import write_list
from limbeck.files import directory_atomically
from limbeck.matchers.arguments import require_pairs
from limbeck.matchers.base import SCORES, Document, Matcher, PreparedBatch, TextBatch, as_parts
from limbeck.matchers.chunks import Chunks, Features, inferred, prepare_chunks, run_chunks
from limbeck.matchers.config import MatcherConfig, architecture
from limbeck.matchers.folder_checks import read_settings
from limbeck.matchers.parts import layer_norm, pooled, side_lengths, start_transformer
from limbeck.matchers.quiet import quiet
from limbeck.matchers.safe_loading import HERE_ONLY, load_safely
from limbeck.matchers.segments import JointTransformer, SegmentPooling, load_segmented
from limbeck.matchers.starts import go_on, learnt_parts, start_of
from limbeck.matchers.tower import describe
from limbeck.signals import Signals


@dataclass(frozen=True)
class Pairs(PreparedBatch):
    """One process's pairs, both texts of each tokenised together."""

    pairs: Chunks
    shape: tuple[int, int]  # [own queries, K]
    first_query: int
    masked: list[Chunks] = field(default_factory=list)

    @property
    def tokenised(self) -> list[tuple[Chunks, int]]:
        return [(self.pairs, self.first_query * self.shape[1])]


class CrossEncoderConfig(MatcherConfig):
    """Both texts are read together."""

    kind: Literal["cross_encoder"] = "cross_encoder"
    pooling: Literal["mean", "cls", "segments"] = Field(
        "mean", description="segments: each text's tokens by themselves; starts as the dual encoder it was"
    )
    dropout: float = Field(0.0, ge=0, lt=1, description="dropout on the pooled output, in training only")
    layer_norm: bool = Field(False, description="layer norm on the pooled output")
    offset: float | None = Field(
        None,
        allow_inf_nan=False,
        description="a learnt offset that starts at this, e.g. -10, so that scores can be a probability's logit "
        "(with pooling: segments)",
    )
    outputs: int = Field(1, ge=1, description="scores per pair")

    @model_validator(mode="after")
    def _segments_have_no_head(self) -> CrossEncoderConfig:
        if self.pooling == "segments" and (self.outputs != 1 or self.dropout or self.layer_norm):
            raise ValueError("pooling: segments has one output and no head; drop outputs, dropout and layer_norm")
        if self.offset is not None and self.pooling != "segments":
            raise ValueError("offset needs pooling: segments; a head on one pooled vector has its own")
        return self


@architecture
class CrossEncoder(Matcher):
    """s(q, d) = w . pool(T(concat(q, d))): the teacher. Scores are raw logits; no sigmoid is applied."""

    kind = "cross_encoder"
    config_type = CrossEncoderConfig
    model_types = ("CrossEncoder",)

    def __init__(self, model: STCrossEncoder) -> None:
        super().__init__()
        self.model = model

    @property
    def outputs(self) -> int:
        return int(self.model.num_labels)

    def prepare(self, batch: TextBatch, chunk: int | None = None) -> Pairs:
        count = len(batch.documents)
        lists = batch.lists if batch.lists is not None else torch.arange(count).expand(len(batch.queries), -1)
        own = lists[batch.query_slice]
        documents = [self._joined(document) for document in batch.documents]
        pairs = [
            (query, documents[column])
            for query, row in zip(batch.own_queries, own.tolist(), strict=True)
            for column in row
        ]
        shape = (len(own), own.shape[1])
        return Pairs(prepare_chunks(pairs, self._preprocess, chunk), shape, batch.query_slice.start or 0)

    def _joined(self, document: Document) -> str:
        """The second and further texts as one, parted as the model parts texts."""
        tokenizer: Any = self.model.tokenizer
        return f" {tokenizer.sep_token or ''} ".join(as_parts(document))

    def _preprocess(self, pairs: list[tuple[str, str]]) -> Features:
        return self.model.preprocess(pairs, prompt=self._prompt())

    def _prompt(self) -> str | None:
        name = self.model.default_prompt_name
        return self.model.prompts.get(name) if name else None

    def forward(self, inputs: Pairs, needs: frozenset[str] = SCORES, recompute: bool = False) -> Signals:
        scores = run_chunks(inputs.pairs, self._run, recompute)  # [B * K] or [B * K, outputs]
        return Signals(scores=scores.view(*inputs.shape, *scores.shape[1:]))

    def _run(self, features: Features) -> Tensor:
        scores = self.model(features)["scores"]
        return scores.squeeze(-1) if self.outputs == 1 and scores.dim() > 1 else scores

    def score(self, pairs: Sequence[tuple[str, ...]], batch_size: int = 32) -> np.ndarray:
        require_pairs(pairs, batch_size)
        if not len(pairs):
            return np.zeros(0, dtype=np.float32)
        joined = [(pair[0], self._joined(pair[1:])) for pair in pairs]

        def prepare(block: list[tuple[str, str]]) -> Chunks:
            return prepare_chunks(block, self._preprocess, batch_size)

        return torch.cat(list(inferred(self, joined, prepare, self._run, "Scoring pairs"))).numpy()

    @classmethod
    def build(cls, config: Any, local: Any) -> CrossEncoder:
        return cls(STCrossEncoder(modules=_modules(local), activation_fn=nn.Identity(), device="cpu"))

    @classmethod
    def reads(cls, folder: Path) -> bool:
        architectures = read_settings(folder / "config.json").get("architectures") or []
        return any(str(name).endswith("ForSequenceClassification") for name in architectures)

    def configuration(self) -> dict[str, Any]:
        return describe(self.model)

    def save_pretrained(self, path: str | Path) -> None:
        with quiet(), directory_atomically(path) as folder:
            self.model.save_pretrained(str(folder), create_model_card=False)
            write_list(folder)

    @classmethod
    def from_pretrained(cls, path: str | Path, revision: str | None = None) -> CrossEncoder:
        """Load a sentence-transformers cross-encoder folder or hub name; no code of the model's own is run."""
        raw = torch.nn.Identity()  # given, or the library would call whatever the folder names as its activation

        def make(folder: str) -> CrossEncoder:
            segmented = load_segmented(Path(folder))
            if segmented is not None:
                return cls(STCrossEncoder(modules=segmented, activation_fn=raw, device="cpu"))
            return cls(STCrossEncoder(folder, activation_fn=raw, device="cpu", **HERE_ONLY))

        return load_safely(path, revision, make)


def _modules(config: CrossEncoderConfig) -> list[nn.Module]:
    if config.pooling == "segments":
        transformer = start_transformer(start_of(config), side_lengths(config), JointTransformer)
        transformer.model.config.num_labels = 1  # where the library looks for the number of outputs
        return [transformer, _segment_pooling(config)]
    transformer = start_transformer(start_of(config), {"max_seq_length": config.query_length + config.document_length})
    width = transformer.get_embedding_dimension()
    head = Dense(width, config.outputs, activation_function=nn.Identity(), module_output_name="scores")
    nn.init.normal_(head.linear.weight, std=0.02)
    nn.init.zeros_(head.linear.bias)
    learnt = [module for module in learnt_parts(config) if not isinstance(module, SegmentPooling)]
    rest = go_on(config.init_from, [*layer_norm(config, width), head], learnt, new_head=True)
    return [*pooled(config, transformer), *rest]


def _segment_pooling(config: CrossEncoderConfig) -> SegmentPooling:
    """As the start has learnt it, if it has; an offset that the start lacks is new."""
    learnt = [module for module in learnt_parts(config) if isinstance(module, SegmentPooling)]
    if learnt and (config.offset is None or learnt[0].offset is not None):
        return learnt[0]
    fresh = SegmentPooling(offset_start=config.offset)
    if learnt:
        fresh.load_state_dict(learnt[0].state_dict(), strict=False)
    return fresh
