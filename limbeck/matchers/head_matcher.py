"""A matcher made of a pretrained encoder and a head that is trained with it: DiPair, Siamese, VIRT and their like.

Everything before the head depends on a single text. `keep` gives the encoder's outputs for a text, `encode` the stored
input of the head. Subclasses choose which of the two exist and make the head.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import numpy as np
import torch
from pydantic import Field
from safetensors.torch import load_file, save_file
from sentence_transformers.base.modules import Transformer
from torch import Tensor, nn

from limbeck.errors import LimbeckError, bad_input
from limbeck.file_list import write_list
from limbeck.files import directory_atomically, write_json
from limbeck.matchers.attention import AttentionFacts, facts_of, most_text_tokens
from limbeck.matchers.base import SCORES, PreparedBatch, TextBatch, as_parts, distinct, tokeniser_digest, weights_digest
from limbeck.matchers.chunks import Chunks, Features, Side, inferred, prepare_chunks, run_chunks
from limbeck.matchers.config import MatcherConfig
from limbeck.matchers.encoding import Encoded, Encoding, TokenVectors, Vectors, as_stored, join_stored, take_texts
from limbeck.matchers.encoding_matcher import EncodingMatcher
from limbeck.matchers.folder_checks import read_settings
from limbeck.matchers.gather import gather_texts, zero_of
from limbeck.matchers.interactions import Interaction, interaction_named
from limbeck.matchers.parts import side_lengths, start_transformer
from limbeck.matchers.quiet import quiet
from limbeck.matchers.safe_loading import HERE_ONLY, load_safely
from limbeck.matchers.splitting import USUAL
from limbeck.matchers.starts import start_of
from limbeck.matchers.text_attention import Watch, chunk_runner
from limbeck.matchers.tower import CODE_VERSION, config_digest
from limbeck.signals import TEXT_ATTENTION, Signals
from limbeck.stores.ragged import Ragged

CONFIG, HEAD = "limbeck.json", "head.safetensors"
FORMAT, READABLE = 2, (1, 2)
NOT_IN_SCORES = {"start", "inner_dropout"}


@dataclass(frozen=True)
class Texts(PreparedBatch):
    """The distinct texts of one process's share of a batch, and the rows of each position."""

    texts: list[Chunks | Tensor]  # tokenised, or the encoder's stored outputs [n, width] or [n, slots, width]
    places: list[tuple[int, Tensor]]  # for each position: the index into `texts`, and its rows there
    lists: Tensor | None
    document_count: int  # over all processes


class HeadConfig(MatcherConfig):
    """The keys of matchers with an encoder and a head."""

    hides_tokens: ClassVar[bool] = False  # certain tokens are kept and must not be hidden

    untied: bool = Field(False, description="a separate encoder for each text")


class ClassifierConfig(HeadConfig):
    """The keys of heads with several layers."""

    dropout: float = Field(0.0, ge=0, lt=1, description="dropout in the head, in training only")
    outputs: int = Field(1, ge=1, description="scores per pair")


class HeadMatcher(EncodingMatcher):
    """One encoder for all texts, or one for each position, and a head over their outputs."""

    config_type: ClassVar[type[HeadConfig]]
    shows = SCORES | TEXT_ATTENTION
    outputs_are_the_encoders: ClassVar[bool] = True  # so that they can be stored while the encoder is frozen
    of_the_head: ClassVar[frozenset[str]] = frozenset()  # keys of its config that the encoder's outputs ignore

    head: Interaction

    def __init__(self, config: Any, encoders: Sequence[Transformer], head: Interaction | None = None) -> None:
        """Subclasses make a new head if none is given."""
        super().__init__()
        self.settings = config
        self.encoders = nn.ModuleList(encoders)  # one for all texts, or one for each position
        self.width = int(encoders[0].get_embedding_dimension())
        if head is not None:
            self.head = head

    @classmethod
    def build(cls, config: Any, local: Any) -> Self:
        return cls(config, cls.start_encoders(local))

    @classmethod
    def start_encoders(cls, local: Any) -> list[Transformer]:
        """The encoders that a config starts from."""
        count = (local.text_count or 2) if local.untied else 1
        return [start_transformer(start_of(local), side_lengths(local)) for _ in range(count)]

    @abstractmethod
    def _select(self, states: Tensor, mask: Tensor, position: int) -> Encoded:
        """The outputs that are kept of the token states [n, tokens, width] of a text."""

    @property
    def interaction(self) -> Interaction:
        return self.head

    def kept_encoding(self, position: int) -> Encoding:
        """The shape of the encoder's outputs for a text."""
        return self.encoding(position)

    def encoder(self, position: int) -> Transformer:
        return self.encoders[position if len(self.encoders) > 1 else 0]  # type: ignore[return-value]

    def encoder_modules(self, position: int) -> list[nn.Module]:
        return [self.encoder(position)]

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
        """Groups of positions in which equal texts have equal outputs and are encoded once."""
        groups: dict[tuple[Any, ...], list[int]] = {}
        for position in range(self.texts):
            own = position if len(self.encoders) > 1 or self.encoded is not None else 0
            groups.setdefault((own, *self._reading(position)), []).append(position)
        return list(groups.values())

    def _reading(self, position: int) -> tuple[Any, ...]:
        """What decides the outputs of a text at a position, in addition to the encoder."""
        return (self.settings.document_length if position else self.settings.query_length,)

    def parts(self, documents: Sequence[Any]) -> list[list[str]]:
        """The texts of each position except the first, from documents that are one text or a tuple of texts."""
        return [[" ".join(as_parts(document)) for document in documents]]

    def _prepare(self, texts: list[str], position: int, chunk: int | None) -> Chunks | Tensor:
        if self.encoded is not None:
            return torch.from_numpy(self.encoded(texts, position))
        return self._tokenised(texts, position, chunk)

    def _tokenised(
        self, texts: list[str], position: int, chunk: int | None = None, budget: int | None = None
    ) -> Chunks:
        return prepare_chunks(texts, lambda some: self._preprocess(some, position), chunk, _side(position), budget)

    def _preprocess(self, texts: list[str], position: int) -> Features:
        return self.encoder(position).preprocess(texts, task=_side(position))

    def forward(self, inputs: Texts, needs: frozenset[str] = SCORES, recompute: bool = False) -> Signals:
        watch = Watch(self.attention_layers) if needs & TEXT_ATTENTION else None
        pairs = zip(inputs.texts, self._alike(), strict=True)
        texts = [self._kept(some, positions[0], recompute, watch) for some, positions in pairs]
        parts = [take_texts(texts[group], rows) for group, rows in inputs.places]
        parts = [parts[0], *(self._everyone(part, inputs.document_count) for part in parts[1:])]
        projected = [self.project(kept, position) for position, kept in enumerate(parts)]
        prepared = [self.head.prepare(text, position) for position, text in enumerate(projected)]
        attention = watch.at(inputs.places, inputs.document_count) if watch is not None else None
        return Signals(scores=self.head(prepared, inputs.lists), text_attention=attention)

    def _kept(self, texts: Chunks | Tensor, position: int, recompute: bool, watch: Watch | None = None) -> Encoded:
        """The encoder's outputs for texts, with gradients."""
        if isinstance(texts, Tensor):
            return texts
        each = chunk_runner(watch, self.encoder(position), texts)
        if not texts.passes:
            nothing, zero = self.kept_encoding(position).nothing(), zero_of(self.encoder(position))
            if isinstance(nothing, Ragged):
                vectors, mask = (torch.from_numpy(part).to(self.device) for part in nothing.padded())
                return TokenVectors(vectors + zero, mask)
            return torch.from_numpy(nothing).to(self.device) + zero
        return run_chunks(texts, lambda features: self._run(features, position), recompute, each)

    def _run(self, features: Features, position: int) -> Encoded:
        mask = features["attention_mask"].bool()
        states = self.encoder(position)(features)["token_embeddings"]
        return self._select(states, mask, position)

    def _everyone(self, kept: Encoded, count: int) -> Encoded:
        """The outputs of the documents of all processes."""
        return gather_texts(kept, count, self.settings.document_length)

    def project(self, kept: Encoded, position: int) -> Encoded:
        """The input of the head for texts."""
        return kept

    def attention(self, position: int) -> AttentionFacts:
        if self.texts != 2:
            raise LimbeckError(f"virt compares the attention of two texts, and there are {self.texts}; drop virt")
        return facts_of(self.encoder(position))

    def text_tokens(self, position: int) -> int:
        return most_text_tokens(self.encoder(position).tokenizer, lambda texts: self._preprocess(texts, position))

    # -- inference -----------------------------------------------------------------------------------------------

    def keep(self, texts: Sequence[str], position: int, batch_size: int = 64) -> Any:
        """The encoder's outputs for texts at one position, before other trained modules."""

        def prepare(block: list[str]) -> Chunks:
            return self._tokenised(block, position, budget=batch_size * USUAL)

        def run(features: Features) -> Encoded:
            return self._run(features, position)

        found = inferred(self, texts, prepare, run, "Encoding texts")
        return join_stored([self.kept_encoding(position).nothing(), *map(as_stored, found)])

    def encode(self, texts: Sequence[str], position: int, batch_size: int = 64) -> Vectors:
        """The stored encodings of texts at one position."""
        if self.encoded is not None:
            return self.encoded(list(texts), position)
        return self.keep(texts, position, batch_size)

    @property
    def reads_stored_outputs(self) -> bool:
        return self.encoded is not None

    def encoder_outputs(self, position: int) -> tuple[Encoding, dict[str, Any]] | None:
        if not self.outputs_are_the_encoders:
            return None
        without = NOT_IN_SCORES | self.of_the_head
        own = {key: value for key, value in self.settings.flat().items() if key not in without}
        key = {
            "weights": weights_digest(self.encoder(position)),
            "configuration": self.configuration() | {"spec": own},
            "position": position,
        }
        return self.kept_encoding(position), key

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
            head = {"interaction": self.head.name, "arguments": self.head.arguments}
            config = self.settings.model_dump(mode="json")
            write_json(folder / CONFIG, {"kind": self.kind, "format": FORMAT, "config": config, "head": head})
            write_list(folder)

    @classmethod
    def from_pretrained(cls, path: str | Path, revision: str | None = None) -> Self:
        """Load a folder that `save_pretrained` wrote."""
        return load_safely(path, revision, lambda folder: cls._read(Path(folder))).eval()

    @classmethod
    def _read(cls, folder: Path) -> Self:
        facts = read_settings(folder / CONFIG)
        if facts.get("format") not in READABLE:
            raise bad_input(folder / CONFIG, f"has format {facts.get('format')!r}, not {FORMAT}", "update limbeck")
        config = cls.config_type.model_validate(facts.get("config") or facts["spec"])
        places = [folder / f"encoder-{number}" for number in range((config.text_count or 2) if config.untied else 1)]
        head = facts.get("head")
        matcher = cls(
            config,
            [Transformer.load(str(place), **HERE_ONLY) for place in places],
            None if head is None else interaction_named(head["interaction"], head["arguments"]),
        )
        missing, unexpected = matcher.load_state_dict(load_file(folder / HEAD), strict=False)
        if unexpected or any(not name.startswith("encoders.") for name in missing):
            raise bad_input(folder / HEAD, "does not match its configuration", "save the model again")
        return matcher


def pool(states: Tensor, mask: Tensor, how: Literal["mean", "cls"]) -> Tensor:
    """One vector [n, width] of each text: the mean over its real tokens, or the first token."""
    if how == "cls":
        return states[torch.arange(len(states), device=states.device), mask.long().argmax(dim=1)]
    counts = mask.unsqueeze(-1).to(states.dtype)
    return (states * counts).sum(dim=1) / counts.sum(dim=1).clamp(min=1)


def _side(position: int) -> Side:
    return "query" if position == 0 else "document"
