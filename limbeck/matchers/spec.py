"""What a matcher is to be: which weights to start from, how deep, how pooled, how wide."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

Layers = int | tuple[int, ...]  # the first so many, or the numbers of the layers to keep, from 0
COLBERT_DIM = 128
FFNN_WIDTH = 128
CODES = 16
TEACHER = "teacher"  # as a start: the weights of the recipe's teacher
# The kinds that an option is for; it may be given for no other. Whatever is not here is for all.
BELONGS = {
    "pooling": ("dual_encoder", "cross_encoder", "poly_encoder"),
    "dropout": ("dual_encoder", "cross_encoder", "dipair"),
    "layer_norm": ("dual_encoder", "cross_encoder"),
    "dim": ("dual_encoder", "colbert", "dipair"),
    "similarity": ("dual_encoder", "colbert"),
    "scale": ("dual_encoder",),
    "offset": ("cross_encoder",),
    "prompts": ("dual_encoder",),
    "separate": ("dual_encoder", "dipair", "poly_encoder"),
    "outputs": ("cross_encoder", "dipair"),
    "tokens": ("dipair", "poly_encoder"),
    "take": ("dipair",),
    "head": ("dipair",),
    "head_layers": ("dipair",),
    "head_heads": ("dipair",),
    "head_width": ("dipair",),
}
SIMILARITIES = {"dual_encoder": ("dot", "cosine"), "colbert": ("maxsim", "meanmaxsim")}


class MatcherSpec(BaseModel):
    """A matcher to be made: the `student` of a recipe, or a teacher that is trained first."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: Literal["dual_encoder", "cross_encoder", "colbert", "dipair", "poly_encoder"] = "dual_encoder"
    start: str = Field(
        "minilm", description="weights to start from: a folder, a hub name, `minilm`, or (student) `teacher`"
    )
    layers: Layers | None = Field(
        None, description="layers to keep: a number (the first so many) or a list, e.g. [0, 5]; all by default"
    )
    pooling: Literal["mean", "cls", "segments"] = Field(
        "mean", description="segments (cross-encoder): each text by itself; starts as the dual encoder it was"
    )
    query_length: int = Field(
        32, ge=4, description="tokens of a query, special ones included; colbert fills it with [MASK]"
    )
    document_length: int = Field(128, ge=4, description="tokens of a document, special ones included")
    dropout: float = Field(0.0, ge=0, lt=1, description="embedding dropout: on the pooled output, in training only")
    inner_dropout: float | None = Field(
        None,
        ge=0,
        lt=1,
        description="dropout inside the transformer, in training only; its own by default, 0 trains faster",
    )
    layer_norm: bool = Field(False, description="layer norm on the pooled output")
    dim: int | None = Field(
        None, ge=1, le=65536, description="vector size after a learnt projection; none by default, 128 for colbert"
    )
    similarity: Literal["dot", "cosine", "maxsim", "meanmaxsim"] = Field(
        "dot", description="dot or cosine; for colbert maxsim, the sum over query tokens, or meanmaxsim, their mean"
    )
    scale: float | None = Field(
        None, gt=0, description="unit vectors, then a learnt linear map that starts as this scale (dual encoder, dot)"
    )
    offset: float | None = Field(
        None,
        allow_inf_nan=False,
        description="a learnt offset that starts at this, e.g. -10, so that scores can be a probability's logit "
        "(cross-encoder, pooling: segments)",
    )
    prompts: dict[str, str] = Field({}, description="text before each query or document, e.g. {query: 'query: '}")
    separate: bool = Field(False, description="a tower of its own for each side (dual encoder, dipair)")
    outputs: int = Field(1, ge=1, description="scores per pair (cross-encoder, dipair)")
    tokens: tuple[int, ...] = Field(
        (4, 8), description="vectors that each text keeps, one number a text (dipair, poly_encoder)"
    )
    take: Literal["first", "last"] = Field("first", description="which of a text's tokens are kept (dipair)")
    head: Literal["transformer", "transformer+cosine", "ffnn", "cosine"] = Field(
        "transformer",
        description="what reads the kept tokens; cosine, of one vector each, has no sizes; transformer+cosine adds to "
        "the cosine of the first ones (dipair)",
    )
    head_layers: int = Field(2, ge=1, description="transformer layers, or hidden layers of ffnn (dipair)")
    head_heads: int = Field(1, ge=1, description="attention heads of a transformer head (dipair)")
    head_width: int = Field(1024, ge=1, description="the head's inner width; 128 for ffnn (dipair)")

    @model_validator(mode="before")
    @classmethod
    def _defaults_of_the_kind(cls, given: Any) -> Any:
        if isinstance(given, dict) and given.get("kind") == "colbert":
            return {"similarity": "maxsim", "dim": COLBERT_DIM} | given
        if isinstance(given, dict) and given.get("kind") == "dipair" and given.get("head") == "ffnn":
            return {"head_width": FFNN_WIDTH} | given
        if isinstance(given, dict) and given.get("kind") == "poly_encoder":
            return {"tokens": (CODES, 1)} | given
        return given

    @field_validator("layers", mode="before")
    @classmethod
    def _layers_are_numbers(cls, layers: Any) -> Any:
        numbers = layers if isinstance(layers, list | tuple) else [0 if layers is None else layers]
        if not all(isinstance(number, int) and not isinstance(number, bool) for number in numbers):
            raise ValueError(f"{layers!r} is neither a number of layers nor a list of them; e.g. 2, or [0, 5]")
        return layers

    @field_validator("layers")
    @classmethod
    def _layers_rise(cls, layers: Layers | None) -> Layers | None:
        if isinstance(layers, int) and layers < 1:
            raise ValueError("keep at least one layer")
        if isinstance(layers, tuple) and (not layers or layers[0] < 0 or list(layers) != sorted(set(layers))):
            raise ValueError(f"{list(layers)}: give the numbers of the layers to keep in rising order, from 0")
        return layers

    @model_validator(mode="after")
    def _options_fit_the_kind(self) -> MatcherSpec:
        for name, kinds in BELONGS.items():
            if self.kind not in kinds and getattr(self, name) != type(self).model_fields[name].get_default():
                raise ValueError(f"{name} belongs to a {' or a '.join(kinds)}; drop it for a {self.kind}")
        known = SIMILARITIES.get(self.kind)
        if known and self.similarity not in known:
            raise ValueError(f"similarity: a {self.kind} has {' or '.join(known)}, not {self.similarity}")
        if self.pooling == "segments" and self.kind != "cross_encoder":
            raise ValueError(f"pooling: segments belongs to a cross_encoder; a {self.kind} sees one text at a time")
        if self.pooling == "segments" and (self.outputs != 1 or self.dropout or self.layer_norm):
            raise ValueError("pooling: segments has one output and no head; drop outputs, dropout and layer_norm")
        if self.offset is not None and self.pooling != "segments":
            raise ValueError("offset needs pooling: segments; a head on one pooled vector has its own")
        if len(self.tokens) < 2 or min(self.tokens) < 1:
            raise ValueError("tokens: give one number for each text, at least two, each at least 1")
        for name, count in (("query_length", self.tokens[0]), ("document_length", max(self.tokens[1:]))):
            if self.kind == "dipair" and count > getattr(self, name):
                raise ValueError(f"tokens: {count} is more than {name} ({getattr(self, name)}) leaves; keep fewer")
        if self.kind == "poly_encoder" and (len(self.tokens) != 2 or min(self.tokens) != 1 or max(self.tokens) == 1):
            raise ValueError("tokens: a poly_encoder has codes for one text and one vector for the other, e.g. [16, 1]")
        if self.kind == "dipair" and self.head == "cosine" and (self.tokens != (1, 1) or self.outputs != 1):
            raise ValueError("head: cosine is of two vectors and gives one score; use tokens: [1, 1] and outputs: 1")
        if self.kind == "dipair" and self.head == "transformer+cosine" and (len(self.tokens) != 2 or self.outputs != 1):
            raise ValueError("head: transformer+cosine is of two texts and gives one score; use head: transformer")
        if self.kind == "dipair" and self.dim is not None and self.dim % self.head_heads:
            raise ValueError(f"dim ({self.dim}) is not a multiple of head_heads ({self.head_heads})")
        if self.scale is not None and self.similarity != "dot":
            raise ValueError("scale needs similarity: dot; a cosine cannot leave [-1, 1]")
        return self

    @property
    def pair_length(self) -> int:
        """Tokens of both texts together, for a cross-encoder."""
        return self.query_length + self.document_length
