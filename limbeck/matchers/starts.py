"""What a model keeps from its start, in addition to the transformer.

A folder's projection, norms and scores were trained with its transformer. A model of the same kind keeps them; if its
config has no place for them, it is refused, because the rest is not the model that was trained. A model of another
kind (such as a dual encoder from a ColBERT) starts from the transformer, and its other parts are new.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar

from safetensors import safe_open
from sentence_transformers.base.modules import Dense, Normalize
from sentence_transformers.sentence_transformer.modules import LayerNorm
from torch import nn

from limbeck.errors import LimbeckError
from limbeck.matchers.config import MatcherConfig
from limbeck.matchers.folder_checks import OWN_CONFIG, check_folder, parts, read_settings
from limbeck.matchers.names import local_folder
from limbeck.matchers.safe_loading import HERE_ONLY
from limbeck.matchers.segments import SegmentPooling
from limbeck.matchers.tct import is_tct

Config = TypeVar("Config", bound=MatcherConfig)
KINDS = {"SentenceTransformer": "dual_encoder", "CrossEncoder": "cross_encoder", "MultiVectorEncoder": "colbert"}
PASSING = (  # not learnt, or the transformer itself
    "Transformer", "StaticEmbedding", "Pooling", "Dropout", "MultiVectorMask", "DualPooling",
)  # fmt: skip
ENCODERS = ("Transformer", "StaticEmbedding")
LOADERS: dict[str, Any] = {"Dense": Dense.load, "LayerNorm": LayerNorm.load, "Normalize": Normalize.load}


def local_start(config: Config) -> Config:
    """`config` with its start as a checked folder; the functions below need that."""
    names = [name for name in ("init_from", "document") if getattr(config, name, None) is not None]
    folders = {name: local_folder(getattr(config, name)) for name in names}
    for folder in folders.values():
        check_folder(folder)
    return config.model_copy(update={name: str(folder) for name, folder in folders.items()})


def start_of(config: Config, side: str | None = None) -> Config:
    """`config` with the folder of a transformer as its start; if the start has separate towers, the tower of `side`."""
    folder = Path(config.init_from)
    if (folder / OWN_CONFIG).exists() and not (folder / "modules.json").exists():
        kind = read_settings(folder / OWN_CONFIG).get("kind")
        raise LimbeckError(
            f"{config.init_from}: a {kind} cannot be used for init_from; use its encoder: {folder / 'encoder-0'}"
        )
    routes = read_settings(folder / "router_config.json").get("structure")
    if routes is None:
        place = next((place for kind, place in parts(folder) if kind in ENCODERS), folder)
        return config.model_copy(update={"init_from": str(place)})
    if side is None or side not in routes:
        first = folder / next(iter(routes.values()))[0]
        raise LimbeckError(
            f"{config.init_from}: has a separate tower for each side; set untied: true, or start from {first}"
        )
    return config.model_copy(update={"init_from": str(folder / routes[side][0])})


def start_kind(config: MatcherConfig, side: str | None = None) -> str | None:
    """The class of the module that embeds a start's tokens; if the start has separate towers, for `side`."""
    found = (kind for kind, _ in _of_side(Path(config.init_from), side) if kind in ENCODERS)
    return next(found, None)


def learnt_parts(config: MatcherConfig, side: str | None = None) -> list[nn.Module]:
    """The modules of the start after its pooling, if it has the same kind as `config`; final modules that only scale
    vectors are left to `similarity`.
    """
    folder = Path(config.init_from)
    if _kind(folder) != config.kind:
        return []
    if not (folder / "modules.json").exists():
        return [_inline_projection(folder)] if config.kind == "colbert" else []
    found = [(kind, place) for kind, place in _of_side(folder, side) if kind not in PASSING]
    while found and found[-1][0] == "Normalize":
        found.pop()
    unknown = next((kind for kind, _ in found if kind not in (*LOADERS, "SegmentPooling")), None)
    if unknown is not None:
        problem = f"has a module ({unknown}) that a {config.kind} cannot keep"
        raise LimbeckError(f"{config.init_from}: {problem}; start from another")
    return [_load(kind, place, config.kind) for kind, place in found]


def go_on(start: str, fresh: list[Any], learnt: list[Any], new_head: bool = False) -> list[Any]:
    """The modules after the pooling: the learnt ones, then those of `fresh` that the start does not have.

    With `new_head` the last module of `fresh` may differ from the start's, because the config has other outputs.
    """
    if not learnt or not fresh:
        return learnt or fresh
    if new_head and len(fresh) == len(learnt) and _shape(fresh[-1]) != _shape(learnt[-1]):
        return [*go_on(start, fresh[:-1], learnt[:-1]), fresh[-1]]
    if [_shape(module) for module in fresh[: len(learnt)]] != [_shape(module) for module in learnt]:
        theirs, ours = (", ".join(map(_shape, some)) for some in (learnt, fresh))
        remedy = "leave out dim, scale and layer_norm to keep them; to drop them, delete modules.json in a copy"
        raise LimbeckError(f"{start}: has learnt {theirs} after its transformer, not {ours}; {remedy}")
    return [*learnt, *fresh[len(learnt) :]]


def keeps_tct(config: Any) -> bool:
    """Whether the start reads texts like TCT-ColBERT. A dual encoder keeps that; some options do not fit it."""
    if config.kind != "dual_encoder" or not is_tct(config.init_from):
        return False
    plain = type(config)(init_from=config.init_from)
    names = ("pooling", "layer_norm", "dim", "similarity", "scale", "prompts", "untied")
    changed = next((name for name in names if getattr(config, name) != getattr(plain, name)), None)
    if changed is not None:
        problem = f"reads texts as TCT-ColBERT does, and {changed} does not fit that"
        raise LimbeckError(f"{config.init_from}: {problem}; drop {changed}, or start from another model")
    return True


def _kind(folder: Path) -> str | None:
    own = read_settings(folder / OWN_CONFIG).get("kind")
    if own is not None:
        return str(own)
    described = read_settings(folder / "config_sentence_transformers.json").get("model_type")
    if described is None and (folder / "modules.json").exists():
        return "dual_encoder"
    architectures = read_settings(folder / "config.json").get("architectures") or []
    return "colbert" if described == "ColBERT" or "HF_ColBERT" in architectures else KINDS.get(str(described))


def _of_side(folder: Path, side: str | None) -> list[tuple[str, Path]]:
    routes = read_settings(folder / "router_config.json").get("structure")
    names = None if routes is None else {folder / name for name in routes[side]}
    return [(kind, place) for kind, place in parts(folder) if names is None or place in names]


def _load(kind: str, place: Path, model: str) -> Any:
    if kind == "SegmentPooling":
        return SegmentPooling.restore(place)
    tokens = {"init_defaults": {"module_input_name": "token_embeddings"}} if model == "colbert" else {}  # as in PyLate
    return LOADERS[kind](str(place), **HERE_ONLY, **tokens)


def _inline_projection(folder: Path) -> Dense:
    """Stanford's ColBERT keeps its projection among the weights of the transformer."""
    with safe_open(folder / "model.safetensors", "pt") as file:
        weight = file.get_tensor("linear.weight")
    dim, width = weight.shape
    linear: dict[str, Any] = {"bias": False, "activation_function": nn.Identity(), "init_weight": weight}
    return Dense(width, dim, **linear, module_input_name="token_embeddings")


def _shape(module: Any) -> str:
    if isinstance(module, Dense):
        return f"Dense({module.in_features}, {module.out_features})"
    return f"LayerNorm({module.dimension})" if isinstance(module, LayerNorm) else type(module).__name__
