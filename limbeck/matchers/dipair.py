"""DiPair: each text keeps the outputs of a few tokens, and a light head reads those of a pair (DiPair Sec. 3)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from pydantic import Field, field_validator, model_validator
from sentence_transformers.base.modules import Transformer
from torch import Tensor, nn

from limbeck.errors import LimbeckError
from limbeck.matchers.base import as_parts
from limbeck.matchers.config import architecture
from limbeck.matchers.encoding import Encoded, Encoding, TokenVectors
from limbeck.matchers.head_matcher import ClassifierConfig, HeadConfig, HeadMatcher
from limbeck.matchers.interactions import CosineHead, FeedForwardHead, Interaction, TransformerHead

BLOCK = 2048  # number of texts projected at a time
FFNN_WIDTH = 128
# Keys of a config that do not affect the encoder's outputs; `tokens` only affects its own position.
OF_THE_HEAD = frozenset({"dropout", "dim", "outputs", "tokens", "head", "head_layers", "head_heads", "head_width"})


class SlotsConfig(HeadConfig):
    """The keys of matchers that keep a fixed number of vectors of each text."""

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


class DiPairConfig(SlotsConfig, ClassifierConfig):
    """The first tokens of each text, and a light head over them."""

    kind: Literal["dipair"] = "dipair"
    dim: int | None = Field(None, ge=1, le=65536, description="vector size after a learnt projection; none by default")
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
class DiPair(HeadMatcher):
    """A truncated encoder for each text, a projection for each position, and a head over what they keep.

    `kept` are the encoder's vectors [slots, width] of a text, `encode` the stored vectors [slots, dim] for the head; a
    slot without a token is zeros.
    """

    kind = "dipair"
    config_type: ClassVar[type[SlotsConfig]] = DiPairConfig
    of_the_head: ClassVar[frozenset[str]] = OF_THE_HEAD

    def __init__(self, config: Any, encoders: Sequence[Transformer], head: Interaction | None = None) -> None:
        super().__init__(config, encoders)
        self.dim = dim = self._dim or self.width
        width = self.width
        self.projections = nn.ModuleList(nn.Linear(width, dim) if self._dim else nn.Identity() for _ in config.tokens)
        for projection in self.projections:
            if isinstance(projection, nn.Linear):
                nn.init.orthogonal_(projection.weight)
                nn.init.zeros_(projection.bias)
                projection.load_state_dict(self.projections[0].state_dict())  # equal texts start with equal vectors
        self.head = head or self._make_head(dim)

    @property
    def _dim(self) -> int | None:
        """The size of a projection, or None."""
        return self.settings.dim

    def _make_head(self, dim: int) -> Interaction:
        """The head that reads the kept vectors, of `dim` numbers each."""
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

    def _select(self, states: Tensor, mask: Tensor, position: int) -> Encoded:
        """[n, slots, width], zeros if a text has no token in a slot."""
        return _take(states, mask, self.settings.tokens[position], self.settings.take == "last")

    def encoding(self, position: int) -> Encoding:
        return Encoding(self.dim, self.settings.tokens[position])

    def kept_encoding(self, position: int) -> Encoding:
        return Encoding(self.width, self.settings.tokens[position])

    @property
    def texts(self) -> int:
        return len(self.settings.tokens)

    def columns(self, pairs: Sequence[tuple[str, ...]]) -> list[list[str]]:
        return [[pair[0] for pair in pairs], *self.parts([pair[1:] for pair in pairs])]

    def parts(self, documents: Sequence[Any]) -> list[list[str]]:
        """The texts of each position except the first, from documents that are one text or a tuple of texts."""
        rows = [as_parts(document) for document in documents]
        wrong = next((row for row in rows if len(row) != self.texts - 1), None)
        if wrong is not None:
            problem = f"this model reads {self.texts} texts and got {len(wrong) + 1}"
            raise LimbeckError(f"{problem}; set student.tokens to one number for each text")
        return [[row[number] for row in rows] for number in range(self.texts - 1)]

    def _reading(self, position: int) -> tuple[Any, ...]:
        return (*super()._reading(position), self.settings.tokens[position])

    def _projection(self, position: int) -> nn.Module:
        return self.projections[position]

    def project(self, kept: Encoded, position: int) -> TokenVectors:
        """The input of the head: vectors [n, slots, dim] and a mask."""
        assert isinstance(kept, Tensor)
        mask = (kept != 0).any(dim=-1)
        vectors = self._projection(position)(kept.float())
        return TokenVectors(vectors * mask.unsqueeze(-1), mask)

    def encode(self, texts: Sequence[str], position: int, batch_size: int = 64) -> np.ndarray:
        """The stored vectors of texts at one position: [n, slots, dim] float32, zeros for slots without a token."""
        kept = super().encode(texts, position, batch_size)
        assert isinstance(kept, np.ndarray)
        with torch.inference_mode():
            starts = range(0, len(kept), BLOCK)
            some = (torch.from_numpy(kept[start : start + BLOCK]).to(self.device) for start in starts)
            blocks = [self.project(block, position).vectors.cpu().numpy() for block in some]
        return np.concatenate([np.zeros((0, self.settings.tokens[position], self.dim), np.float32), *blocks])

    def encoder_outputs(self, position: int) -> tuple[Encoding, dict[str, Any]] | None:
        found = super().encoder_outputs(position)
        return None if found is None else (found[0], found[1] | {"tokens": self.settings.tokens[position]})


def _take(states: Tensor, mask: Tensor, slots: int, last: bool) -> Tensor:
    """The states [n, slots, width] of the first (or last real) tokens, in order; zeros if a text has fewer."""
    lengths = mask.sum(dim=1, keepdim=True)  # [n, 1]
    place = torch.arange(slots, device=states.device).expand(len(states), -1)  # [n, slots]
    first = (lengths - slots).clamp(min=0) if last else torch.zeros_like(lengths)
    padded = mask.long().argmax(dim=1, keepdim=True)  # tokens of padding on the left
    wanted = (padded + first + place).clamp(max=states.shape[1] - 1)
    real = place < lengths
    found = states.gather(1, wanted.unsqueeze(-1).expand(-1, -1, states.shape[-1]))
    return found * real.unsqueeze(-1)
