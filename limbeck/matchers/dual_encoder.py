"""A tower and a light interaction: dual encoders (Defense Eq. 2)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from pydantic import Field, model_validator
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Module, Normalize, Router, Transformer
from sentence_transformers.sentence_transformer.modules import StaticEmbedding
from torch import Tensor, nn

from limbeck.errors import LimbeckError
from limbeck.file_list import write_list
from limbeck.files import directory_atomically
from limbeck.matchers.align_tower import align_tower, pooled_outputs
from limbeck.matchers.asymmetric import document_model, with_documents_of
from limbeck.matchers.attention import AttentionFacts
from limbeck.matchers.base import SCORES, Matcher, TextBatch, as_parts
from limbeck.matchers.chunks import SIDES, Chunks, Side
from limbeck.matchers.config import MatcherConfig, architecture
from limbeck.matchers.encoding import Encoding
from limbeck.matchers.encoding_matcher import EncodingMatcher
from limbeck.matchers.gather import gather_rows
from limbeck.matchers.interactions import Cosine, Dot, Interaction
from limbeck.matchers.new_transformer import new_transformer
from limbeck.matchers.own_kind import mark_kind, own_facts, stored_interaction
from limbeck.matchers.parts import (
    as_dense,
    keep_whole,
    layer_norm,
    learnt_scale,
    pooled,
    projection,
    side_lengths,
    start_transformer,
    vector_size,
)
from limbeck.matchers.quiet import quiet
from limbeck.matchers.safe_loading import HERE_ONLY, load_safely
from limbeck.matchers.starts import go_on, keeps_tct, learnt_parts, start_of
from limbeck.matchers.static import static_modules, truncate
from limbeck.matchers.static_fit import MOST_TEXTS, fit_towers
from limbeck.matchers.tct import TctTransformer, load_tct
from limbeck.matchers.text_attention import Watch
from limbeck.matchers.token_head import TOKEN_HEAD, TokenHead
from limbeck.matchers.tower import Tower, TwoSides
from limbeck.signals import TEXT_ATTENTION, TEXT_SIGNALS, Signals

TOKENS = frozenset({"token_logits"})
SIMILARITIES: dict[str, type[Interaction]] = {kind.name: kind for kind in (Dot, Cosine)}


class DualEncoderConfig(MatcherConfig):
    """Query and document are encoded separately into one vector each."""

    chooses_layers = True

    kind: Literal["dual_encoder"] = "dual_encoder"
    encoder: Literal["transformer", "static", "new"] = Field(
        "transformer",
        description="`static` averages a vector per token, without a transformer: microseconds a query. `new` is a "
        "random transformer of `layers` and `width` with the tokenizer and the token table of init_from",
    )
    width: int = Field(128, ge=8, le=8192, description="numbers per token in the transformer (encoder: new)")
    pooling: Literal["mean", "cls"] = Field("mean", description="how token states become one vector")
    dropout: float = Field(0.0, ge=0, lt=1, description="embedding dropout: on the pooled output, in training only")
    layer_norm: bool = Field(False, description="layer norm on the pooled output")
    dim: int | None = Field(None, ge=1, le=65536, description="vector size after a learnt projection; none by default")
    similarity: Literal["dot", "cosine"] = Field("dot", description="how two vectors are compared")
    scale: float | None = Field(
        None, gt=0, description="unit vectors, then a learnt linear map that starts as this scale (with dot)"
    )
    prompts: dict[str, str] = Field({}, description="text before each query or document, e.g. {query: 'query: '}")
    untied: bool = Field(False, description="separate weights for queries and documents")
    align: bool = Field(
        False,
        description="before training, map the student's vectors into the space of the teacher (a dual encoder) or "
        "of the model it starts from with all layers, by least squares",
    )
    document: str | None = Field(
        None,
        description="take the document tower of this model as it is: a folder, a hub name or `teacher`. Only the query "
        "tower is trained, and the model's document index serves the student",
    )

    @property
    def shows(self) -> frozenset[str]:
        return DualEncoder.shows

    @model_validator(mode="after")
    def _a_scale_needs_a_dot(self) -> DualEncoderConfig:
        if self.scale is not None and self.similarity != "dot":
            raise ValueError("scale needs similarity: dot; a cosine cannot leave [-1, 1]")
        return self

    @model_validator(mode="after")
    def _documents_decide(self) -> DualEncoderConfig:
        if self.document is not None:
            own = type(self).model_fields
            for name in ("similarity", "scale", "dim", "prompts", "untied"):
                if getattr(self, name) != own[name].get_default(call_default_factory=True):
                    raise ValueError(f"{name}: with document, the document tower decides it; drop {name}")
        return self

    @model_validator(mode="after")
    def _a_static_encoder_has_no_layers(self) -> DualEncoderConfig:
        usual = type(self).model_fields
        for name in ("layers", "inner_dropout", "pooling") if self.encoder == "static" else ():
            if getattr(self, name) != usual[name].default:
                raise ValueError(f"{name} does not go with encoder: static, which has no transformer; drop {name}")
        return self

    @model_validator(mode="after")
    def _a_new_encoder_has_a_size(self) -> DualEncoderConfig:
        if self.encoder != "new":
            if self.width != type(self).model_fields["width"].default:
                raise ValueError(f"width is for encoder: new, and this is encoder: {self.encoder}; drop width")
        elif not isinstance(self.layers, int):
            shown = list(self.layers) if isinstance(self.layers, tuple) else self.layers
            problem = "encoder: new needs layers" if shown is None else f"layers={shown}: encoder: new keeps none"
            raise ValueError(f"{problem}; give the number of new layers, e.g. layers: 2")
        return self


@architecture
class DualEncoder(EncodingMatcher):
    """Query and document are encoded separately; their vectors are compared with a dot product or a cosine."""

    kind = "dual_encoder"
    shows = SCORES | TEXT_SIGNALS | TOKENS | TEXT_ATTENTION
    config_type = DualEncoderConfig
    model_types = ("SentenceTransformer",)

    def __init__(self, model: SentenceTransformer, interaction: Interaction | None = None) -> None:
        super().__init__()
        similarity = str(model.similarity_fn_name or "cosine")
        if similarity not in SIMILARITIES:
            raise LimbeckError(f"a dual encoder with {similarity} similarity is not supported; use dot or cosine")
        self.similarity = similarity
        self.tower = Tower(model)
        self.fixed_documents = False  # whether the document tower belongs to another model and is never trained
        self._interaction = interaction or SIMILARITIES[similarity]()

    @property
    def interaction(self) -> Interaction:
        return self._interaction

    def encoding(self, position: int) -> Encoding:
        return Encoding(self.dim)

    @property
    def dim(self) -> int:
        return self.tower.dim

    def prepare(self, batch: TextBatch, chunk: int | None = None) -> TwoSides:
        if self.encoded is None:
            return self.tower.prepare_batch(batch, chunk)
        texts = [" ".join(as_parts(document)) for document in batch.documents]
        known = torch.from_numpy(np.ascontiguousarray(self.encoded(texts, 1)))  # [P, dim], of all processes
        queries_alone = replace(batch, documents=[], document_slice=slice(0, 0))
        return replace(self.tower.prepare_batch(queries_alone, chunk), known_documents=known)

    def train(self, mode: bool = True) -> DualEncoder:
        """Keep a frozen document tower in evaluation mode: its stored vectors have no dropout."""
        super().train(mode)
        if self.fixed_documents:
            for module in self.tower.route("document"):
                module.eval()
        return self

    @property
    def reads_stored_outputs(self) -> bool:
        return self.encoded is not None

    def read_outputs_from(self, stored: Callable[[list[str], int], np.ndarray] | None) -> None:
        """Take document vectors from `stored` instead of the tower; they must come from the same tower."""
        self.encoded = stored

    def forward(self, inputs: TwoSides, needs: frozenset[str] = SCORES, recompute: bool = False) -> Signals:
        signals = self._matched(inputs, needs, recompute) if needs - TOKENS else Signals()
        if needs & TOKENS:
            signals = replace(signals, token_logits=self._restored(inputs.masked, recompute))
        return signals

    def _matched(self, inputs: TwoSides, needs: frozenset[str], recompute: bool) -> Signals:
        watch = Watch(self.attention_layers) if needs & TEXT_ATTENTION else None
        queries = self.tower(inputs.queries, recompute, watch)  # [B, dim]
        documents = inputs.known_documents  # [P, dim]
        if documents is None:
            documents = gather_rows(self.tower(inputs.documents, recompute, watch), inputs.document_count)
        lists = inputs.lists
        return Signals(
            scores=self._scores(queries, documents, lists) if "scores" in needs else None,
            queries=queries if "queries" in needs else None,
            documents=documents if "documents" in needs else None,
            text_attention=watch.of_batch(inputs.document_count) if watch is not None else None,
        )

    def _scores(self, queries: Tensor, documents: Tensor, lists: Tensor | None) -> Tensor:
        with torch.autocast(queries.device.type, enabled=False):
            prepared = [self.interaction.prepare(text, position) for position, text in enumerate((queries, documents))]
        return self.interaction(prepared, lists)

    def _restored(self, masked: list[Chunks], recompute: bool) -> Tensor:
        """Logits [M, vocabulary] at the masked tokens of each part of the batch, one part after the other."""
        head = self.token_head
        chunks = [self.tower.token_logits(part, head, recompute) for part in masked]
        return torch.cat([*chain.from_iterable(chunks)])

    def add_token_head(self, seed: int) -> None:
        """One head for both sides; a side with its own tower still decodes with its own token embeddings."""
        first = self.tower.transformer("query")
        if isinstance(first, StaticEmbedding):
            raise LimbeckError("masked_lm: a static encoder has no token states to restore from; drop it")
        self.heads[TOKEN_HEAD] = TokenHead.of(first, seed).to(self.device)

    def attention(self, position: int) -> AttentionFacts:
        if self.fixed_documents:
            raise LimbeckError("virt trains both towers, and student.document is another model's; drop one of them")
        return self.tower.attention(SIDES[position])

    def text_tokens(self, position: int) -> int:
        return self.tower.text_tokens(SIDES[position])

    def encoder_modules(self, position: int) -> list[nn.Module]:
        return self.tower.route(SIDES[position])

    def append_projection(self, projection: nn.Linear) -> None:
        if isinstance(self.tower.model[0], Router):
            raise LimbeckError("a projection cannot be added to two towers at once; use untied: false")
        self.tower.model.append(as_dense(projection).to(self.device))

    def encode(self, texts: Sequence[str], position: int, batch_size: int = 32) -> np.ndarray:
        if position == 1 and self.encoded is not None:
            return self.encoded(list(texts), position)
        return self.tower.encode(texts, SIDES[position], batch_size)

    @property
    def scores_are_cosines(self) -> bool:
        return self.similarity == Cosine.name or all(
            isinstance(self.tower.route(side)[-1], Normalize) for side in SIDES
        )

    def limit_tokens(self, longest: int) -> None:
        for side in SIDES:
            first = self.tower.transformer(side)
            if isinstance(first, StaticEmbedding):
                truncate(first, longest)
            else:
                first.max_seq_length = min(first.max_seq_length or longest, longest)
                for own in ("query_length", "document_length"):  # a model may have lengths for each side
                    if getattr(first, own, None):
                        setattr(first, own, min(getattr(first, own), longest))

    @property
    def trained_positions(self) -> tuple[int, ...]:
        return (0,) if self.fixed_documents else (0, 1)

    @property
    def aligned_positions(self) -> tuple[int, ...]:
        return (0, 1) if isinstance(self.tower.transformer("query"), StaticEmbedding) else self.trained_positions

    @property
    def aligned_on(self) -> int:  # type: ignore[override]
        return MOST_TEXTS if isinstance(self.tower.transformer("query"), StaticEmbedding) else super().aligned_on

    def align(
        self, texts: Sequence[Sequence[str]], targets: Sequence[np.ndarray], reference: Matcher, seed: int = 0
    ) -> list[float]:
        """A static tower gets token vectors, another tower a linear map."""
        positions = self.trained_positions
        if isinstance(self.tower.transformer("query"), StaticEmbedding):
            return fit_towers(self, positions, texts, targets, reference, seed)
        return [found.cosine for found in align_tower(self.tower, positions, texts, targets, seed)]

    def pooled(self, texts: Sequence[str], position: int) -> np.ndarray:
        return pooled_outputs(self.tower, texts, SIDES[position])

    @classmethod
    def build(cls, config: Any, local: Any) -> DualEncoder:
        if local.document is not None:
            documents = document_model(local.document)
            if local.encoder == "static":
                local = local.model_copy(update={"dim": documents.get_embedding_dimension()})
            model = with_documents_of(documents, _modules(local, "query"))
            found = cls(model, cls.make_interaction(config))
            found.fixed_documents = True
            return found
        if local.untied:
            query, document = (_modules(local, side) for side in SIDES)
            modules: list[nn.Module] = [Router.for_query_document(query, document)]
        else:
            modules = [*_modules(local)]
        similarity: Any = local.similarity
        told: Any = {"similarity_fn_name": similarity, "prompts": local.prompts}
        model = SentenceTransformer(modules=modules, device="cpu", **told)
        return cls(model, cls.make_interaction(config))

    @classmethod
    def make_interaction(cls, config: Any) -> Interaction | None:
        """The interaction that replaces dot and cosine, in a derived architecture."""
        return None

    def configuration(self) -> dict[str, Any]:
        return self.tower.configuration() | {"similarity": self.similarity} | own_facts(self)

    def identity(self, position: int | None = None) -> dict[str, Any]:
        """For one side, the identity of a plain model with the modules of this side: a student with its teacher's
        document tower has its teacher's document vectors.
        """
        if position is None or not isinstance(self.tower.model[0], Router):
            return super().identity()
        model: Any = self.tower.model
        told: Any = {"prompts": model.prompts, "default_prompt_name": model.default_prompt_name}
        modules: Any = self.tower.route(SIDES[position])
        side = SentenceTransformer(modules=modules, device="cpu", similarity_fn_name=model.similarity_fn_name, **told)
        alone = type(self)(side, self._interaction)
        alone.bf16, alone.computed = self.bf16, self.computed
        return alone.identity()

    def save_pretrained(self, path: str | Path) -> None:
        with quiet(), directory_atomically(path) as folder:
            self.tower.model.save_pretrained(str(folder), create_model_card=False)
            mark_kind(folder, self)
            write_list(folder)

    @classmethod
    def from_pretrained(cls, path: str | Path, revision: str | None = None) -> DualEncoder:
        """Load a sentence-transformers folder or hub name, without running code from the model."""

        def make(folder: str) -> DualEncoder:
            model = load_tct(folder) or SentenceTransformer(folder, device="cpu", **HERE_ONLY)
            return cls(model, stored_interaction(folder))

        return load_safely(path, revision, make)


def _modules(config: DualEncoderConfig, side: Side | None = None) -> list[Module]:
    """The modules of one tower."""
    if config.encoder == "static":
        return static_modules(config, side)
    new = config.encoder == "new"
    transformer = new_transformer(config, side) if new else _kept_transformer(config, side)
    width = transformer.get_embedding_dimension()
    learnt: list[Any] = [] if new else learnt_parts(config, side)
    first = pooled(config, transformer)
    if config.dim is None and not config.layer_norm and learnt and not any(isinstance(m, Normalize) for m in learnt):
        return [*first, *learnt, *learnt_scale(config, vector_size(learnt))]  # e.g. an aligned start, then a scale
    fresh: list[Module] = layer_norm(config, width)
    if config.dim is not None:
        fresh.append(projection(width, config.dim))
        width = config.dim
    fresh += learnt_scale(config, width)
    return [*first, *go_on(config.init_from, fresh, learnt)]


def _kept_transformer(config: DualEncoderConfig, side: Side | None) -> Transformer:
    """The transformer of the start, or some of its layers."""
    kind = TctTransformer if keeps_tct(config) else Transformer
    transformer = start_transformer(start_of(config, side), side_lengths(config), kind)
    keep_whole(transformer.tokenizer, config.prompts)
    return transformer
