"""The cross-encoder: both texts in one pass, nothing is stored (Defense Sec. 2; EmbedDistill Sec. 4.2)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from pydantic import Field, model_validator
from sentence_transformers import CrossEncoder as STCrossEncoder
from sentence_transformers.base.modules import Dense
from torch import Tensor, nn

from limbeck.errors import LimbeckError
from limbeck.file_list import write_list
from limbeck.files import directory_atomically
from limbeck.matchers.arguments import require_pairs
from limbeck.matchers.attention import AttentionFacts, facts_of
from limbeck.matchers.base import SCORES, Document, Matcher, PreparedBatch, TextBatch, as_parts
from limbeck.matchers.chunks import Chunks, Features, each_chunk, inferred, prepare_chunks
from limbeck.matchers.config import MatcherConfig, architecture
from limbeck.matchers.cross_attention import cross_attention, join_pairs
from limbeck.matchers.cross_encoder_modules import modules_of
from limbeck.matchers.dual_pooling import APART, DOCUMENT, QUERY, DualPooling
from limbeck.matchers.folder_checks import read_settings
from limbeck.matchers.joined_pairs import JoinedPairs, joined_pairs
from limbeck.matchers.own_modules import load_own_modules
from limbeck.matchers.pair_tokens import OF_TEXT, own_lengths, refuse_other_lengths, tokenise_apart
from limbeck.matchers.quiet import quiet
from limbeck.matchers.safe_loading import HERE_ONLY, load_safely
from limbeck.matchers.segments import SegmentPooling
from limbeck.matchers.splitting import USUAL
from limbeck.matchers.token_head import TOKEN_HEAD, TokenHead
from limbeck.matchers.tower import describe
from limbeck.signals import CROSS_ATTENTION, TOKEN_SIGNALS, Signals

PROXIES = frozenset({QUERY, DOCUMENT})
SHOWN = SCORES | CROSS_ATTENTION | {"seen_token_logits"}


@dataclass(frozen=True)
class Pairs(PreparedBatch):
    """One process's pairs, with both texts tokenised together."""

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
    pooling: Literal["mean", "cls", "segments", "special", "weighted"] = Field(
        "mean",
        description="mean, cls: one vector of the pair, and a head. The others have a vector of each text and no head."
        " segments: means of each text's tokens, cosine; starts as the dual encoder it was. special: [CLS] and the"
        " last [SEP], inner product. weighted: sums of each text's tokens / sqrt(their number), inner product",
    )
    across: float | None = Field(
        None,
        le=0,
        allow_inf_nan=False,
        description="reduce the attention between the two texts by this; each text has its own positions, so that it "
        "starts as a dual encoder: -4 with pooling: segments; special and weighted have none by default",
    )
    dropout: float = Field(0.0, ge=0, lt=1, description="dropout on the pooled output, in training only")
    layer_norm: bool = Field(False, description="layer norm on the pooled output")
    offset: float | None = Field(
        None,
        allow_inf_nan=False,
        description="start of a learnt offset, e.g. -10, so that scores can be logits of probabilities "
        "(with pooling: segments)",
    )
    outputs: int = Field(1, ge=1, description="scores per pair")

    @property
    def shows(self) -> frozenset[str]:
        return SHOWN | (PROXIES if self.pooling in APART else {"pair_embeddings"})

    @model_validator(mode="after")
    def _segments_have_no_head(self) -> CrossEncoderConfig:
        if self.pooling in APART and (self.outputs != 1 or self.dropout or self.layer_norm):
            problem = f"pooling: {self.pooling} has one output and no head"
            raise ValueError(f"{problem}; drop outputs, dropout and layer_norm")
        if self.across is not None and self.pooling not in APART:
            raise ValueError(f"across needs pooling: {', '.join(APART)}; drop it, or change the pooling")
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
        self.shows = self._shows()
        self._apart: tuple[int, int] | None = None  # see `read_apart`
        self._joined_pairs: tuple[Any, JoinedPairs | None] | None = None  # see `_shared`

    def _shows(self) -> frozenset[str]:
        """The output of its pooling besides scores: proxies of both texts, one embedding of the pair, or nothing."""
        last: Any = self.model[-1]
        if isinstance(last, DualPooling | SegmentPooling):
            return SHOWN | PROXIES
        pooled = isinstance(last, Dense) and last.module_input_name == "sentence_embedding"
        return SHOWN | {"pair_embeddings"} if pooled else SCORES | CROSS_ATTENTION

    @property
    def embedding_dim(self) -> int | None:
        first: Any = self.model[0]
        last: Any = self.model[-1]
        if self.shows >= PROXIES:
            return int(first.get_embedding_dimension())
        return int(last.in_features) if "pair_embeddings" in self.shows else None

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
        preprocess = self._preprocess if self._apart is None else self._preprocess_apart
        return Pairs(prepare_chunks(pairs, preprocess, chunk), shape, batch.query_slice.start or 0)

    def _joined(self, document: Document) -> str:
        """All texts but the first as one, joined with the model's separator."""
        tokenizer: Any = self.model.tokenizer
        return f" {tokenizer.sep_token or ''} ".join(as_parts(document))

    def _preprocess(self, pairs: list[tuple[str, str]]) -> Features:
        return self.model.preprocess(pairs, prompt=self._prompt())

    def _prompt(self) -> str | None:
        name = self.model.default_prompt_name
        return self.model.prompts.get(name) if name else None

    def attention(self, position: int) -> AttentionFacts:
        return facts_of(self.model[0])

    def text_tokens(self, position: int) -> int:
        """How many tokens of a text it can read where each text is cut by itself."""
        return own_lengths(self.model[0])[position]

    def read_apart(self, tokens: tuple[int, int] | None) -> None:
        if tokens is not None:
            refuse_other_lengths(self.model[0], tokens)
            if self._prompt():
                raise LimbeckError("virt: the teacher puts a prompt before its texts; use a teacher without one")
        self._apart = tokens

    def _preprocess_apart(self, pairs: list[tuple[str, str]]) -> Features:
        assert self._apart is not None
        return tokenise_apart(self.model[0], pairs, self._apart)

    def forward(self, inputs: Pairs, needs: frozenset[str] = SCORES, recompute: bool = False) -> Signals:
        chunks = each_chunk(inputs.pairs, partial(self._shown, needs), recompute)
        found: dict[str, Any] = {name: torch.cat([chunk[name] for chunk in chunks]) for name in needs - CROSS_ATTENTION}
        for name in found.keys() - TOKEN_SIGNALS:  # tokens stay in the order of the chunks
            rows = found[name][inputs.pairs.restore]  # [B * K, ...]
            found[name] = rows.view(*inputs.shape, *rows.shape[1:])
        if needs & CROSS_ATTENTION:
            blocks = [chunk["cross_attention"] for chunk in chunks]
            found["cross_attention"] = join_pairs(blocks, inputs.pairs.restore, inputs.shape)
        return Signals(**found)

    def _shown(self, needs: frozenset[str], features: Features) -> dict[str, Any]:
        """The signals of one chunk of pairs; `chosen` are the tokens whose logits are needed."""
        chosen, of_text = features.pop("chosen", None), features.pop(OF_TEXT, None)
        first: Any = self.model[0]
        attention, made = None, dict[str, Any]()
        if needs & CROSS_ATTENTION:
            made, attention = cross_attention(first.model, features, of_text, self.attention_layers, self.model)
        else:
            made = self.model(features)
        shown = made | {"scores": self._flat(made["scores"]), "pair_embeddings": made.get("sentence_embedding")}
        shown["cross_attention"] = attention
        if "seen_token_logits" in needs:
            table = first.model.get_input_embeddings()
            shown["seen_token_logits"] = self.token_head(made["token_embeddings"][chosen], table.weight)
        return {name: shown[name] for name in needs}

    def _run(self, features: Features) -> Tensor:
        return self._flat(self.model(features)["scores"])

    def _flat(self, scores: Tensor) -> Tensor:
        """[pairs] for one output, otherwise [pairs, outputs]."""
        return scores.squeeze(-1) if self.outputs == 1 and scores.dim() > 1 else scores

    def add_token_head(self, seed: int) -> None:
        """A head that predicts visible tokens; nothing is masked."""
        self.heads[TOKEN_HEAD] = TokenHead.of(self.model[0], seed, masks=False).to(self.device)

    def score(self, pairs: Sequence[tuple[str, ...]], batch_size: int = 32) -> np.ndarray:
        require_pairs(pairs, batch_size)
        if not len(pairs):
            return np.zeros(0, dtype=np.float32)
        joined = [(pair[0], self._joined(pair[1:])) for pair in pairs]

        shared, budget = self._shared() if len(pairs) > 1 else None, batch_size * USUAL

        def prepare(block: list[tuple[str, str]]) -> Chunks:
            if shared is not None:
                return shared.chunks(block, budget)
            return prepare_chunks(block, self._preprocess, budget=budget)

        return torch.cat(list(inferred(self, joined, prepare, self._run, "Scoring pairs"))).numpy()

    def _shared(self) -> JoinedPairs | None:
        """Pairs of texts that are tokenised once, if the model makes pairs in the usual way at its present length."""
        first: Any = self.model[0]
        tokenizer = first.tokenizer
        key = (id(tokenizer), len(tokenizer), first.max_seq_length, tokenizer.truncation_side, self._prompt())
        if self._joined_pairs is None or self._joined_pairs[0] != key:
            self._joined_pairs = key, joined_pairs(tokenizer, first.max_seq_length, self._preprocess)
        return self._joined_pairs[1]

    @classmethod
    def build(cls, config: Any, local: Any) -> CrossEncoder:
        return cls(STCrossEncoder(modules=modules_of(local), activation_fn=nn.Identity(), device="cpu"))

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
        """Load a sentence-transformers cross-encoder folder or hub name, without running code from the model."""
        raw = torch.nn.Identity()  # otherwise the library would call any activation that the folder names

        def make(folder: str) -> CrossEncoder:
            own = load_own_modules(Path(folder))
            if own is not None:
                return cls(STCrossEncoder(modules=own, activation_fn=raw, device="cpu"))
            return cls(STCrossEncoder(folder, activation_fn=raw, device="cpu", **HERE_ONLY))

        return load_safely(path, revision, make)
