"""DiPair: each text keeps the outputs of a few tokens, and a light head reads those of a pair (DiPair Sec. 3)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import torch
import torch.distributed as dist
from pydantic import Field, field_validator, model_validator
from safetensors.torch import load_file, save_file
from sentence_transformers.base.modules import Transformer
from torch import Tensor, nn

from limbeck.errors import LimbeckError, bad_input
from limbeck.file_list import write_list
from limbeck.files import directory_atomically, write_json
from limbeck.matchers.attention import AttentionFacts, facts_of, most_text_tokens
from limbeck.matchers.base import SCORES, PreparedBatch, TextBatch, as_parts, distinct, tokeniser_digest, weights_digest
from limbeck.matchers.chunks import SIDES, Chunks, Features, Side, inferred, prepare_chunks, run_chunks
from limbeck.matchers.config import MatcherConfig, architecture
from limbeck.matchers.encoding import Encoding, TokenVectors
from limbeck.matchers.encoding_matcher import EncodingMatcher
from limbeck.matchers.folder_checks import read_settings
from limbeck.matchers.gather import gather_rows
from limbeck.matchers.interactions import CosineHead, FeedForwardHead, Interaction, TransformerHead
from limbeck.matchers.parts import side_lengths, start_transformer
from limbeck.matchers.quiet import quiet
from limbeck.matchers.safe_loading import HERE_ONLY, load_safely
from limbeck.matchers.starts import start_of
from limbeck.matchers.text_attention import Watch, chunk_runner
from limbeck.matchers.tower import CODE_VERSION, config_digest
from limbeck.signals import TEXT_ATTENTION, Signals

CONFIG, HEAD = "limbeck.json", "head.safetensors"
FORMAT, READABLE = 2, (1, 2)
BLOCK = 2048  # texts that are projected at a time
FFNN_WIDTH = 128
NOT_IN_SCORES = {"start", "inner_dropout"}
# Of a config, what the encoder's outputs do not depend on; `tokens` counts for its own position alone.
OF_THE_HEAD = NOT_IN_SCORES | {"dropout", "dim", "outputs", "tokens", "head", "head_layers", "head_heads", "head_width"}


@dataclass(frozen=True)
class Texts(PreparedBatch):
    """The distinct texts of one process's share of a batch, and where each position finds its own."""

    texts: list[Chunks | Tensor]  # tokenised, or the encoder's stored outputs [n, slots, width]
    places: list[tuple[int, Tensor]]  # of each position: in which of `texts`, and its rows there
    lists: Tensor | None
    document_count: int  # over all processes


class SlotsConfig(MatcherConfig):
    """What matchers have in common that keep a fixed number of vectors of each text."""

    hides_tokens: ClassVar[bool] = False  # certain tokens are kept, which must be there

    untied: bool = Field(False, description="a separate encoder for each text")
    tokens: tuple[int, ...] = Field((4, 8), description="vectors that each text keeps; one number per text")

    @property
    def text_count(self) -> int:
        return len(self.tokens)

    @field_validator("tokens")
    @classmethod
    def _each_text_keeps_some(cls, tokens: tuple[int, ...]) -> tuple[int, ...]:
        if len(tokens) < 2 or min(tokens) < 1:
            raise ValueError("give one number for each text, at least two, each at least 1")
        return tokens


class DiPairConfig(SlotsConfig):
    """The first tokens of each text, and a light head over them."""

    kind: Literal["dipair"] = "dipair"
    dropout: float = Field(0.0, ge=0, lt=1, description="dropout in the head, in training only")
    dim: int | None = Field(None, ge=1, le=65536, description="vector size after a learnt projection; none by default")
    outputs: int = Field(1, ge=1, description="scores per pair")
    take: Literal["first", "last"] = Field("first", description="which of a text's tokens are kept")
    head: Literal["transformer", "transformer+cosine", "ffnn", "cosine"] = Field(
        "transformer",
        description="the network that reads the kept tokens; cosine compares one vector of each text and has no sizes; "
        "transformer+cosine adds its output to the cosine of the first vectors",
    )
    head_layers: int = Field(2, ge=1, description="number of transformer layers, or of hidden layers of ffnn")
    head_heads: int = Field(1, ge=1, description="attention heads of a transformer head")
    head_width: int = Field(1024, ge=1, description="the head's inner width; 128 for ffnn")

    @model_validator(mode="before")
    @classmethod
    def _width_of_the_head(cls, given: Any) -> Any:
        return {"head_width": FFNN_WIDTH} | given if isinstance(given, dict) and given.get("head") == "ffnn" else given

    @model_validator(mode="after")
    def _head_fits_the_tokens(self) -> DiPairConfig:
        for name, count in (("query_length", self.tokens[0]), ("document_length", max(self.tokens[1:]))):
            if count > getattr(self, name):
                raise ValueError(f"tokens: {count} is too many for {name} ({getattr(self, name)}); keep fewer")
        if self.head == "cosine" and (self.tokens != (1, 1) or self.outputs != 1):
            raise ValueError("head: cosine compares two vectors and gives one score; use tokens: [1, 1] and outputs: 1")
        if self.head == "transformer+cosine" and (len(self.tokens) != 2 or self.outputs != 1):
            raise ValueError("head: transformer+cosine compares two texts and gives one score; use head: transformer")
        if self.dim is not None and self.dim % self.head_heads:
            raise ValueError(f"dim ({self.dim}) is not a multiple of head_heads ({self.head_heads})")
        return self


@architecture
class DiPair(EncodingMatcher):
    """A truncated encoder for each text, a projection for each position, and a head over what they keep.

    Everything before the head depends on one text alone. `kept` are the vectors [slots, width] of a text as the encoder
    leaves them, `encode` those [slots, dim] that a store holds for the head; a slot without a token is zeros.
    """

    kind = "dipair"
    config_type: ClassVar[type[SlotsConfig]] = DiPairConfig
    shows = SCORES | TEXT_ATTENTION
    outputs_are_the_encoders: ClassVar[bool] = True  # so that they can be stored while the encoder is frozen

    def __init__(self, config: Any, encoders: Sequence[Transformer]) -> None:
        super().__init__()
        self.settings = config
        self.encoders = nn.ModuleList(encoders)  # one for all texts, or one for each position
        width = int(encoders[0].get_embedding_dimension())
        dim = self._dim or width
        self.dim, self.width = dim, width
        self.projections = nn.ModuleList(nn.Linear(width, dim) if self._dim else nn.Identity() for _ in config.tokens)
        for projection in self.projections:
            if isinstance(projection, nn.Linear):
                nn.init.orthogonal_(projection.weight)
                nn.init.zeros_(projection.bias)
                projection.load_state_dict(self.projections[0].state_dict())  # like texts are alike from the start
        self.head = self._make_head(dim)

    @property
    def _dim(self) -> int | None:
        """The size of a projection; None where there is none."""
        return self.settings.dim

    def _make_head(self, dim: int) -> Interaction:
        """What reads the kept vectors, of `dim` numbers each."""
        config = self.settings
        if config.head == "cosine":
            return CosineHead()
        if config.head == "ffnn":
            return FeedForwardHead(
                config.tokens, dim, config.head_layers, config.head_width, config.outputs, config.dropout
            )
        if dim % config.head_heads:
            problem = f"head_heads: {config.head_heads} heads cannot share vectors of {dim} numbers"
            raise LimbeckError(f"{problem}; choose a divisor of {dim}, or give a dim")
        return TransformerHead(
            config.tokens,
            dim,
            config.head_layers,
            config.head_heads,
            config.head_width,
            config.outputs,
            config.dropout,
            cosine=config.head == "transformer+cosine",
        )

    @classmethod
    def build(cls, config: Any, local: Any) -> DiPair:
        count = local.text_count if local.untied else 1
        return cls(config, [start_transformer(start_of(local), side_lengths(local)) for _ in range(count)])

    def _select(self, states: Tensor, mask: Tensor, position: int) -> Tensor:
        """What a text keeps of its tokens' states."""
        return _take(states, mask, self.settings.tokens[position], self.settings.take == "last")

    @property
    def interaction(self) -> Interaction:
        return self.head

    def encoding(self, position: int) -> Encoding:
        return Encoding(self.dim, self.settings.tokens[position])

    @property
    def texts(self) -> int:
        return len(self.settings.tokens)

    def columns(self, pairs: Sequence[tuple[str, ...]]) -> list[list[str]]:
        return [[pair[0] for pair in pairs], *self.parts([pair[1:] for pair in pairs])]

    def encoder(self, position: int) -> Transformer:
        return self.encoders[position if len(self.encoders) > 1 else 0]  # type: ignore[return-value]

    def _projection(self, position: int) -> nn.Module:
        return self.projections[position]

    # -- a batch -------------------------------------------------------------------------------------------------

    def prepare(self, batch: TextBatch, chunk: int | None = None) -> Texts:
        parts = [batch.own_queries, *self.parts(batch.own_documents)]
        texts: list[Chunks | Tensor] = []
        places: dict[int, tuple[int, Tensor]] = {}
        for positions in self._alike():
            different, rows = distinct(text for position in positions for text in parts[position])
            each = torch.from_numpy(rows).split([len(parts[position]) for position in positions])
            places |= {position: (len(texts), own) for position, own in zip(positions, each, strict=True)}
            texts.append(self._prepare(different, positions[0], chunk))
        of_positions = [places[position] for position in range(self.texts)]
        return Texts(texts, of_positions, batch.own_lists, len(batch.documents))

    def _alike(self) -> list[list[int]]:
        """Positions in groups: where the same text has the same outputs, it is encoded once for all of them."""
        groups: dict[tuple[int, ...], list[int]] = {}
        for position, slots in enumerate(self.settings.tokens):
            own = position if len(self.encoders) > 1 or self.encoded is not None else 0
            length = self.settings.document_length if position else self.settings.query_length
            groups.setdefault((own, length, slots), []).append(position)
        return list(groups.values())

    def parts(self, documents: Sequence[Any]) -> list[list[str]]:
        """The texts of each position but the first, from documents that are one text or a tuple of them."""
        rows = [as_parts(document) for document in documents]
        wrong = next((row for row in rows if len(row) != self.texts - 1), None)
        if wrong is not None:
            problem = f"this model reads {self.texts} texts and got {len(wrong) + 1}"
            raise LimbeckError(f"{problem}; set student.tokens to one number for each text")
        return [[row[number] for row in rows] for number in range(self.texts - 1)]

    def _prepare(self, texts: list[str], position: int, chunk: int | None) -> Chunks | Tensor:
        if self.encoded is not None:
            return torch.from_numpy(self.encoded(texts, position))
        return self._tokenised(texts, position, chunk)

    def _tokenised(self, texts: list[str], position: int, chunk: int | None) -> Chunks:
        encoder = self.encoder(position)
        side: Side = "query" if position == 0 else "document"
        return prepare_chunks(texts, lambda batch: encoder.preprocess(batch, task=side), chunk, side)

    def forward(self, inputs: Texts, needs: frozenset[str] = SCORES, recompute: bool = False) -> Signals:
        watch = Watch(self.attention_layers) if needs & TEXT_ATTENTION else None
        pairs = zip(inputs.texts, self._alike(), strict=True)
        texts = [self._kept(some, positions[0], recompute, watch) for some, positions in pairs]
        parts = [texts[group][rows] for group, rows in inputs.places]
        parts = [parts[0], *(self._everyone(part, inputs.document_count) for part in parts[1:])]
        projected = [self.project(kept, position) for position, kept in enumerate(parts)]
        prepared = [self.head.prepare(text, position) for position, text in enumerate(projected)]
        attention = watch.at(inputs.places, inputs.document_count) if watch is not None else None
        return Signals(scores=self.head(prepared, inputs.lists), text_attention=attention)

    def _kept(self, texts: Chunks | Tensor, position: int, recompute: bool, watch: Watch | None = None) -> Tensor:
        """The encoder's outputs [n, slots, width] at the tokens that are kept, zeros where there is none."""
        if isinstance(texts, Tensor):
            return texts
        each = chunk_runner(watch, self.encoder(position), texts)
        if not texts.passes:
            return torch.zeros(0, self.settings.tokens[position], self.width, device=self.device)
        return run_chunks(texts, lambda features: self._run(features, position), recompute, each)

    def _run(self, features: Features, position: int) -> Tensor:
        mask = features["attention_mask"].bool()
        states = self.encoder(position)(features)["token_embeddings"]
        return self._select(states, mask, position)

    def _everyone(self, kept: Tensor, count: int) -> Tensor:
        """The outputs of all processes' documents."""
        if not (dist.is_available() and dist.is_initialized()) or dist.get_world_size() == 1:
            return kept
        return gather_rows(kept.flatten(1), count).view(count, *kept.shape[1:])

    def project(self, kept: Tensor, position: int) -> TokenVectors:
        """What the head reads of one text."""
        mask = (kept != 0).any(dim=-1)
        vectors = self._projection(position)(kept.float())
        return TokenVectors(vectors * mask.unsqueeze(-1), mask)

    def attention(self, position: int) -> AttentionFacts:
        if self.texts != 2:
            raise LimbeckError(f"virt compares the attention of two texts, and there are {self.texts}; drop virt")
        return facts_of(self.encoder(position))

    def text_tokens(self, position: int) -> int:
        encoder, side = self.encoder(position), SIDES[min(position, 1)]
        return most_text_tokens(encoder.tokenizer, lambda texts: encoder.preprocess(texts, task=side))

    # -- inference -----------------------------------------------------------------------------------------------

    def keep(self, texts: Sequence[str], position: int, batch_size: int = 64) -> np.ndarray:
        """The encoder's outputs of texts at one position, before the projection: [n, slots, width] float32."""

        def prepare(block: list[str]) -> Chunks:
            return self._tokenised(block, position, batch_size)

        def run(features: Features) -> Tensor:
            return self._run(features, position)

        empty = torch.zeros(0, self.settings.tokens[position], self.width)
        return torch.cat([empty, *inferred(self, texts, prepare, run, "Encoding texts")]).numpy()

    def encode(self, texts: Sequence[str], position: int, batch_size: int = 64) -> np.ndarray:
        """What a store holds of texts at one position: [n, slots, dim] float32, zeros where a text has no token."""
        kept = (
            self.encoded(list(texts), position) if self.encoded is not None else self.keep(texts, position, batch_size)
        )
        with torch.inference_mode():
            starts = range(0, len(kept), BLOCK)
            some = (torch.from_numpy(kept[start : start + BLOCK]).to(self.device) for start in starts)
            blocks = [self.project(block, position).vectors.cpu().numpy() for block in some]
        return np.concatenate([np.zeros((0, self.settings.tokens[position], self.dim), np.float32), *blocks])

    @property
    def reads_stored_outputs(self) -> bool:
        return self.encoded is not None

    def encoder_outputs(self, position: int) -> tuple[Encoding, dict[str, Any]] | None:
        if not self.outputs_are_the_encoders:
            return None
        slots = self.settings.tokens[position]
        own = {key: value for key, value in self.settings.flat().items() if key not in OF_THE_HEAD}
        key = {
            "weights": weights_digest(self.encoder(position)),
            "configuration": self.configuration() | {"spec": own},
            "position": position,
            "tokens": slots,
        }
        return Encoding(self.width, slots), key

    def read_outputs_from(self, stored: Callable[[list[str], int], np.ndarray] | None) -> None:
        self.encoded = stored

    def shorten(self, query: int, document: int) -> None:
        """Read fewer tokens of each text."""
        fewer = {
            "query_length": min(self.settings.query_length, query),
            "document_length": min(self.settings.document_length, document),
        }
        self.settings = self.settings.model_copy(update=fewer)

    # -- on disk -------------------------------------------------------------------------------------------------

    def configuration(self) -> dict[str, Any]:
        return {
            "version": CODE_VERSION,
            "spec": {key: value for key, value in self.settings.flat().items() if key not in NOT_IN_SCORES},
            "transformers": [config_digest(encoder.config) for encoder in self.encoders],
            "tokenisers": [tokeniser_digest(encoder.tokenizer) for encoder in self.encoders],
        }

    def save_pretrained(self, path: str | Path) -> None:
        with quiet(), directory_atomically(path) as folder:
            for number in range(len(self.encoders)):
                (folder / f"encoder-{number}").mkdir()
                self.encoder(number).save(str(folder / f"encoder-{number}"))
            rest = {name: value for name, value in self.state_dict().items() if not name.startswith("encoders.")}
            save_file({name: value.detach().cpu().contiguous() for name, value in rest.items()}, folder / HEAD)
            config = self.settings.model_dump(mode="json")
            write_json(folder / CONFIG, {"kind": self.kind, "format": FORMAT, "config": config})
            write_list(folder)

    @classmethod
    def from_pretrained(cls, path: str | Path, revision: str | None = None) -> DiPair:
        """Load a folder that `save_pretrained` wrote."""
        return load_safely(path, revision, lambda folder: cls._read(Path(folder))).eval()

    @classmethod
    def _read(cls, folder: Path) -> DiPair:
        facts = read_settings(folder / CONFIG)
        if facts.get("format") not in READABLE:
            raise bad_input(folder / CONFIG, f"has format {facts.get('format')!r}, not {FORMAT}", "update limbeck")
        config = cls.config_type.model_validate(facts.get("config") or facts["spec"])
        places = [folder / f"encoder-{number}" for number in range(config.text_count if config.untied else 1)]
        matcher = cls(config, [Transformer.load(str(place), **HERE_ONLY) for place in places])
        missing, unexpected = matcher.load_state_dict(load_file(folder / HEAD), strict=False)
        if unexpected or any(not name.startswith("encoders.") for name in missing):
            raise bad_input(folder / HEAD, "does not match its configuration", "save the model again")
        return matcher


def _take(states: Tensor, mask: Tensor, slots: int, last: bool) -> Tensor:
    """The first (or the last real) tokens' states [n, slots, width], in order; zeros where a text has fewer."""
    lengths = mask.sum(dim=1, keepdim=True)  # [n, 1]
    place = torch.arange(slots, device=states.device).expand(len(states), -1)  # [n, slots]
    first = (lengths - slots).clamp(min=0) if last else torch.zeros_like(lengths)
    padded = mask.long().argmax(dim=1, keepdim=True)  # tokens of padding on the left
    wanted = (padded + first + place).clamp(max=states.shape[1] - 1)
    real = place < lengths
    found = states.gather(1, wanted.unsqueeze(-1).expand(-1, -1, states.shape[-1]))
    return found * real.unsqueeze(-1)
