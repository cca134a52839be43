"""Configs of matchers: each architecture has its own, chosen by `kind`.

An architecture is one file: its config, how it is built, loaded and saved, and `@architecture`, which registers it. A
recipe may name any registered kind, including those of other packages.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, TypeVar

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    SerializeAsAny,
    WrapValidator,
    field_validator,
    model_validator,
)
from pydantic.json_schema import JsonSchemaValue

from limbeck.errors import LimbeckError, did_you_mean

if TYPE_CHECKING:
    from limbeck.matchers.base import Matcher

Layers = int | tuple[int, ...] | str  # the first N layers, a list of layer numbers starting at 0, or auto
AUTO = re.compile(r"auto(:[1-9]\d{0,2})?")
TEACHER = "teacher"  # as `init_from`: the weights of the recipe's teacher
RENAMED = {"start": "init_from", "separate": "untied"}  # old names of keys, which still work
DEFAULT_KIND = "dual_encoder"
BUILT_IN = (  # modules of this package
    "dual_encoder", "cross_encoder", "colbert", "dipair", "poly_encoder", "siamese", "sentence_t5", "virt", "deformer",
)  # fmt: skip

# Earlier versions had one record for all kinds and wrote all its keys into recipes and folders. A key of another kind
# is ignored if it has its default value.
FLAT: dict[str, Any] = {
    "pooling": "mean",
    "dropout": 0.0,
    "layer_norm": False,
    "dim": None,
    "similarity": "dot",
    "scale": None,
    "offset": None,
    "prompts": {},
    "untied": False,
    "outputs": 1,
    "tokens": (4, 8),
    "take": "first",
    "head": "transformer",
    "head_layers": 2,
    "head_heads": 1,
    "head_width": 1024,
}


class MatcherConfig(BaseModel):
    """The keys of all kinds: a pretrained transformer to start from, and lengths."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    hides_tokens: ClassVar[bool] = True  # whether tokens may be hidden from it in training
    chooses_layers: ClassVar[bool] = False  # whether `layers: auto` can compare its layers

    kind: str
    init_from: str = Field(
        "minilm", description="weights to start from: a folder, a hub name, `minilm`, or (student) `teacher`"
    )
    layers: Layers | None = Field(
        None,
        description="layers to keep: a number (the first N layers), a list, e.g. [0, 5], or `auto:2` (dual_encoder): "
        "try subsets of two on a sample of texts and keep the best; `auto` takes a third; all by default",
    )
    query_length: int = Field(
        32,
        ge=4,
        description="maximum tokens of a query, with special tokens; colbert fills queries with [MASK] to this length",
    )
    document_length: int = Field(128, ge=4, description="maximum tokens of a document, with special tokens")
    inner_dropout: float | None = Field(
        None,
        ge=0,
        lt=1,
        description="dropout inside the transformer, in training only; its own rate by default, 0 trains faster",
    )

    @model_validator(mode="before")
    @classmethod
    def _keys_of_earlier_versions(cls, given: Any) -> Any:
        if not isinstance(given, dict):
            return given
        named: dict[str, Any] = {str(RENAMED.get(key, key)): value for key, value in given.items()}
        kept = {key: value for key, value in named.items() if key in cls.model_fields or not _ignored(key, value)}
        _refuse_keys_of_other_kinds(cls, kept.keys() - cls.model_fields.keys())
        return kept

    @field_validator("layers", mode="before")
    @classmethod
    def _layers_are_numbers(cls, layers: Any) -> Any:
        if isinstance(layers, str) and AUTO.fullmatch(layers):
            if not cls.chooses_layers:
                kind = cls.model_fields["kind"].get_default()
                raise ValueError(f"{layers}: a {kind} has no embedding to compare; give the layers as a list")
            return layers
        numbers = layers if isinstance(layers, list | tuple) else [0 if layers is None else layers]
        if not all(isinstance(number, int) and not isinstance(number, bool) for number in numbers):
            raise ValueError(f"{layers!r} is neither a number of layers nor a list of them; e.g. 2, [0, 5] or auto:2")
        return layers

    @field_validator("layers")
    @classmethod
    def _layers_rise(cls, layers: Layers | None) -> Layers | None:
        if isinstance(layers, int) and layers < 1:
            raise ValueError("keep at least one layer")
        if isinstance(layers, tuple) and (not layers or layers[0] < 0 or list(layers) != sorted(set(layers))):
            raise ValueError(f"{list(layers)}: give the layer numbers in increasing order, starting at 0")
        return layers

    @property
    def taken_from_teacher(self) -> list[str]:
        """The keys that refer to the recipe's teacher."""
        return [name for name in ("init_from", "document") if getattr(self, name, None) == TEACHER]

    @property
    def fits_to_reference(self) -> bool:
        """Whether a part of it is fitted to a dual encoder's embeddings before training."""
        return isinstance(self.layers, str) or bool(getattr(self, "align", False))

    @property
    def shows(self) -> frozenset[str]:
        """The signals that such a matcher can compute."""
        return frozenset({"scores"})

    @property
    def output_count(self) -> int:
        """Scores per pair."""
        return int(getattr(self, "outputs", 1))

    @property
    def text_count(self) -> int | None:
        """The number of texts in a pair; None if further texts are joined to the second."""
        return None

    def flat(self) -> dict[str, Any]:
        """The config in the form of earlier versions, which stores use as their key."""
        names = {new: old for old, new in RENAMED.items()}
        values: dict[str, Any] = {"kind": self.kind} | FLAT | self.model_dump()
        return {names.get(key, key): value for key, value in values.items()}


def _ignored(key: str, value: Any) -> bool:
    plain = tuple(value) if isinstance(value, list) else value
    return key in FLAT and bool(plain == FLAT[key])


ARCHITECTURES: dict[str, type[Matcher]] = {}
ArchitectureType = TypeVar("ArchitectureType", bound="type[Matcher]")


def architecture(kind: ArchitectureType) -> ArchitectureType:
    """Register an architecture, so that recipes can name its kind and its folders can be loaded."""
    ARCHITECTURES[kind.kind] = kind
    return kind


def architectures() -> dict[str, type[Matcher]]:
    """All architectures by kind, those of this package first."""
    for name in BUILT_IN:
        import_module(f"limbeck.matchers.{name}")
    from limbeck.plugins import load_plugins

    load_plugins()
    return {name: ARCHITECTURES[name] for name in (*BUILT_IN, *ARCHITECTURES)}


def architecture_of(kind: object) -> type[Matcher]:
    """The architecture of a kind."""
    known = ARCHITECTURES if kind in ARCHITECTURES else architectures()
    if kind not in known:
        raise LimbeckError(f"there is no kind {kind!r}; {did_you_mean(str(kind), list(known))}")
    return known[str(kind)]


def matcher_config(kind: str = DEFAULT_KIND, **options: Any) -> MatcherConfig:
    """The config of a kind: `matcher_config("colbert", init_from="minilm", layers=2)`."""
    return architecture_of(kind).config_type.model_validate({"kind": kind, **options})


def _of_its_kind(given: Any, _: Any) -> MatcherConfig:
    """Validate a mapping with the config of its kind."""
    if isinstance(given, MatcherConfig):
        return given
    if not isinstance(given, dict):
        raise ValueError("is not a mapping; give kind, init_from and so on")
    kind = given.get("kind", DEFAULT_KIND)
    try:
        config = architecture_of(kind).config_type
    except LimbeckError as error:
        raise ValueError(str(error)) from error
    return config.model_validate({"kind": kind, **given})


def _refuse_keys_of_other_kinds(config: type[MatcherConfig], keys: Iterable[str]) -> None:
    """The error for a key that belongs to another kind: name that kind."""
    for key in keys:
        owners = [kind for kind, found in architectures().items() if key in found.config_type.model_fields]
        if owners:
            own = config.model_fields["kind"].get_default()
            raise ValueError(f"{key} belongs to a {' or a '.join(owners)}; drop it for a {own}")


class _Union:
    """The JSON schema of any registered config, chosen by `kind`."""

    @classmethod
    def __get_pydantic_json_schema__(cls, _: Any, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        schemas = [found.config_type.model_json_schema() for found in architectures().values()]
        return {"oneOf": schemas, "discriminator": {"propertyName": "kind"}}


AnyMatcherConfig = Annotated[SerializeAsAny[MatcherConfig], WrapValidator(_of_its_kind), _Union]
