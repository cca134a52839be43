"""Checks of a model folder before any library opens it: it must contain only data, and be complete.

The libraries import classes and call functions that a configuration names, and read pickles. So every name is first
compared with a list. A folder may contain other files; files that no library reads are not checked.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from limbeck.errors import bad_input
from limbeck.file_list import NAME, read_list, require_as_listed

Part = tuple[str, Path]  # a module's class and its folder

EXPORT = "limbeck-export.json"  # in a folder that `limbeck export` wrote
OWN_CONFIG = "limbeck.json"  # configuration of kinds that sentence-transformers does not have
SAVE_AGAIN = "download or copy the folder again, or save the model again"
CONVERT = (
    "convert it once, where you trust it: load it with sentence-transformers (or transformers and its tokenizer) and "
    "save it to another folder; docs/security.md has the lines"
)
NO_CODE = "limbeck runs no code from a model folder"
THEIRS = re.compile(
    r"sentence_transformers\.(models|base\.modules|sentence_transformer\.modules|cross_encoder\.modules|"
    r"multi_vector_encoder\.modules)(\.\w+)?\.(?P<name>\w+)"
)
MODULES = {
    "Transformer", "StaticEmbedding", "Pooling", "Dense", "Normalize", "LayerNorm", "Dropout", "Router", "Asym",
    "WeightedLayerPooling", "MultiVectorMask", "TokenPooling", "LogitScore",
}  # fmt: skip
OTHERS = {
    "pylate.models.Dense.Dense": "Dense",
    "limbeck.matchers.tct.TctTransformer": "Transformer",
    "limbeck.matchers.segments.JointTransformer": "Transformer",
    "limbeck.matchers.segments.SegmentPooling": "SegmentPooling",
    "limbeck.matchers.dual_pooling.DualPooling": "DualPooling",
}
WEIGHTED = {"Transformer", "StaticEmbedding", "Dense", "LayerNorm", "WeightedLayerPooling", "SegmentPooling"}
ACTIVATION = re.compile(
    r"torch\.nn(\.modules\.(activation|linear))?\.(Identity|Tanh|ReLU|ReLU6|GELU|SiLU|Mish|ELU|CELU|SELU|Sigmoid|"
    r"LogSigmoid|LeakyReLU|Softplus|Softsign|Tanhshrink|Hardtanh|Hardswish|Hardsigmoid)"
)
PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.pkl")
VOCABULARIES = ("tokenizer.json", "vocab.txt", "vocab.json", "*.model", "tokenizer.model.v3", "bpe.codes", "*.tiktoken")
LOADED = ("model.safetensors", "model.safetensors.index.json")
ATTENTION = (None, "eager", "sdpa", "flash_attention_2", "flex_attention")
TASKS = ("feature-extraction", "sequence-classification", "text-generation")
OUTPUTS = ("last_hidden_state", "logits")
# What a configuration may pass to the libraries' loaders: no paths, no revisions, nothing about pickles or code.
PASSED = {
    "model": ("torch_dtype", "dtype", "attn_implementation", "add_pooling_layer"),
    "processor": ("model_max_length", "padding_side", "truncation_side", "use_fast", "do_lower_case"),
    "config": (),
}
COUNTS = re.compile(r"(n|num)_(hidden_|attention_|decoder_)?(layers?|heads?)|(en|de)coder_(layers|attention_heads)")
MOST = 1000  # layers or heads; a library would build any number


def check_folder(folder: str | Path) -> None:
    """Refuse a folder that names code, has pickled weights or is incomplete."""
    folder = Path(folder)
    if (folder / EXPORT).is_file():
        remedy = "open it with limbeck.runtimes.exported.Exported.load, or give the model that it was made from"
        raise bad_input(folder, "was written by `limbeck export`, to run without torch", remedy)
    _check_list(folder)
    check_settings(folder)
    for kind, place in parts(folder):
        if kind in WEIGHTED:
            _check_weights(place)


def _check_list(folder: Path) -> None:
    """Require that a folder saved by Limbeck has not changed."""
    remedy = f"copy the model again; if you changed it on purpose, delete {NAME}"
    listed = read_list(folder, remedy)
    if listed is not None:
        require_as_listed(folder, listed.files, "has changed since it was saved (its checksum differs)", remedy)


def check_settings(folder: Path) -> None:
    """The checks of everything except the weights, for a model whose weights are not downloaded yet."""
    _check_description(folder)
    for kind, place in parts(folder):
        if kind == "Transformer":
            _check_transformer(place)
        elif kind == "StaticEmbedding":
            _json(place / "tokenizer.json", dict)
        elif kind == "Dense":
            _check_dense(place)


def parts(folder: Path) -> Iterator[Part]:
    """The modules of a folder with their folders; the modules of a router are listed one by one."""
    listing, own = folder / "modules.json", (folder / OWN_CONFIG).exists()
    if own:
        _json(folder / OWN_CONFIG, dict)
    if not listing.exists():
        yield from (("Transformer", place) for place in (sorted(folder.glob("encoder-*")) if own else [folder]))
        return
    for entry in _json(listing, list):
        if not isinstance(entry, dict) or not all(isinstance(entry.get(key), str) for key in ("type", "path", "name")):
            raise bad_input(listing, "has an entry without a name, a type and a path", SAVE_AGAIN)
        yield from _part(_known(entry["type"], listing), _inside(folder, entry["path"], listing))


def has_transformer(folder: str | Path) -> bool:
    """Whether a module of a folder is a transformer, for which transformers reports on its weights."""
    return any(kind == "Transformer" for kind, _ in parts(Path(folder)))


def _part(kind: str, place: Path) -> Iterator[Part]:
    if kind not in ("Router", "Asym"):
        yield kind, place
        return
    listing = next((place / name for name in ("router_config.json", "config.json") if (place / name).exists()), None)
    if listing is None:
        raise bad_input(place / "router_config.json", "no such file", SAVE_AGAIN)
    types = _json(listing, dict).get("types")
    if not isinstance(types, dict) or not types:
        raise bad_input(listing, "lists no modules", SAVE_AGAIN)
    for path, kind in types.items():
        yield from _part(_known(kind, listing), _inside(place, path, listing))


def _known(kind: Any, listing: Path) -> str:
    """The short name of a module's class, if it may be loaded."""
    if isinstance(kind, str) and kind in OTHERS:
        return OTHERS[kind]
    found = THEIRS.fullmatch(kind) if isinstance(kind, str) else None
    if found is None or found["name"] not in MODULES:
        raise bad_input(listing, f"has a module of class {kind!r}, which limbeck does not know", NO_CODE)
    return found["name"]


def _inside(folder: Path, path: str, listing: Path) -> Path:
    if Path(path).is_absolute() or ".." in Path(path).parts:
        raise bad_input(listing, f"names a module outside its folder ({path!r})", SAVE_AGAIN)
    return folder / path


def _check_description(folder: Path) -> None:
    """The file that gives the kind of the model."""
    place = folder / "config_sentence_transformers.json"
    if not place.exists():
        return
    values = _json(place, dict)
    prompts = values.get("prompts") or {}
    if not isinstance(prompts, dict) or not all(isinstance(text, str | None) for text in prompts.values()):
        raise bad_input(place, "prompts: must be texts by name", SAVE_AGAIN)
    whole = (folder / "modules.json").exists() or (folder / OWN_CONFIG).exists()
    if values.get("model_type") in ("SentenceTransformer", "MultiVectorEncoder", "ColBERT") and not whole:
        raise bad_input(folder / "modules.json", "no such file; what follows the transformer is unknown", SAVE_AGAIN)


def _check_transformer(place: Path) -> None:
    _check_no_code(place)
    _check_config(place / "config.json")
    _check_settings(place)
    if not any(_files(place, pattern) for pattern in VOCABULARIES):
        raise bad_input(place / "tokenizer.json", "no such file, nor any other vocabulary", SAVE_AGAIN)


def _check_no_code(place: Path) -> None:
    """Refuse a file that a loader reads and that points to Python code."""
    for file in _files(place, "*.json"):
        if file.name in ("tokenizer.json", "vocab.json", "modules.json") or file.name.endswith(".index.json"):
            continue
        if _names(_json(file), "auto_map"):
            remedy = f"{NO_CODE}; remove auto_map if transformers has the architecture itself"
            raise bad_input(file, "asks for Python code from the model folder (auto_map)", remedy)
    if (place / "custom_generate").exists():
        raise bad_input(place / "custom_generate", "is Python code", f"{NO_CODE}; remove it")
    if (place / "adapter_config.json").exists():
        problem = "is an adapter for another model"
        raise bad_input(
            place / "adapter_config.json", problem, "merge it with its base model and save the merged model"
        )


def _names(value: Any, key: str) -> bool:
    """Whether a key occurs anywhere in a JSON value."""
    waiting = [value]
    while waiting:
        some = waiting.pop()
        if isinstance(some, dict):
            if some.get(key):
                return True
            waiting += some.values()
        elif isinstance(some, list):
            waiting += some
    return False


def _check_config(file: Path) -> None:
    if not file.exists():
        raise bad_input(
            file.parent, "cannot be loaded as a model (no config.json)", "give a model's folder or a hub name"
        )
    values = _json(file, dict)
    for key in ("_attn_implementation", "attn_implementation", "_attn_implementation_internal"):
        if values.get(key) not in ATTENTION:
            raise bad_input(file, f"{key}: {values[key]!r} is not known", f"{NO_CODE}; remove the key")
    for key in ("quantization_config", "transformers_weights"):
        if values.get(key):
            raise bad_input(file, f"{key}: is not supported", "save the model with plain safetensors weights")
    for key, value in values.items():
        if COUNTS.fullmatch(key) and not (isinstance(value, int) and 1 <= value <= MOST) and value is not None:
            raise bad_input(file, f"{key}: {value!r} is not a number from 1 to {MOST}", SAVE_AGAIN)


def _check_settings(place: Path) -> None:
    """Check how sentence-transformers runs the transformer."""
    for file in _files(place, "sentence_*_config.json"):
        values = _json(file, dict)
        if values.get("tokenizer_name_or_path"):
            raise bad_input(file, "takes its tokenizer from another folder", "save the model with its tokenizer")
        if values.get("transformer_task", TASKS[0]) not in TASKS:
            raise bad_input(file, f"transformer_task: {values['transformer_task']!r} is not supported", NO_CODE)
        text = (values.get("modality_config") or {"text": {}}).get("text") or {}
        if text.get("method", "forward") != "forward" or text.get("method_output_name", OUTPUTS[0]) not in OUTPUTS:
            raise bad_input(file, f"modality_config: {text!r} is not supported", NO_CODE)
        for name, allowed in PASSED.items():
            given = {**(values.get(f"{name}_args") or {}), **(values.get(f"{name}_kwargs") or {})}
            unknown = sorted(set(given) - {*allowed, "trust_remote_code"})
            if unknown or given.get("attn_implementation") not in ATTENTION:
                key = unknown[0] if unknown else "attn_implementation"
                raise bad_input(file, f"{name}_kwargs: {key} = {given[key]!r} is not allowed", f"{NO_CODE}; remove it")


def _check_dense(place: Path) -> None:
    file = place / "config.json"
    activation = _json(file, dict).get("activation_function", "torch.nn.Identity")
    if not isinstance(activation, str) or not ACTIVATION.fullmatch(activation):
        raise bad_input(file, f"activation_function: {activation!r} is not one that limbeck knows", NO_CODE)


def _check_weights(place: Path) -> None:
    """Require safetensors weights: a pickle can run code when it is read."""
    found = next((place / name for name in LOADED if (place / name).exists()), None)
    if found is not None:
        for file in _shards(found) if found.name == LOADED[1] else [found]:
            _check_readable(file)
        return
    pickled = [file for pattern in PICKLES for file in _files(place, pattern)]
    if pickled:
        problem = "is a pickle, which can run code when it is read, and it has no safetensors weights"
        raise bad_input(pickled[0], problem, CONVERT)
    raise bad_input(place / LOADED[0], "no such file", SAVE_AGAIN)


def _shards(index: Path) -> list[Path]:
    shards = _json(index, dict).get("weight_map")
    if not isinstance(shards, dict) or not shards:
        raise bad_input(index, "lists no weights", SAVE_AGAIN)
    names = sorted(set(map(str, shards.values())))
    for name in names:
        if Path(name).name != name or not name.endswith(".safetensors"):
            raise bad_input(index, f"names weights that are not a safetensors file next to it ({name!r})", SAVE_AGAIN)
    return [index.parent / name for name in names]


def _check_readable(file: Path) -> None:
    """Require that a file is readable; the libraries would call an unreadable file missing."""
    if not file.is_file():
        raise bad_input(file, "is not a file" if file.exists() else "no such file", SAVE_AGAIN)
    try:
        with open(file, "rb"):
            pass
    except OSError as error:
        raise bad_input(file, f"cannot be read ({error.strerror})", "check its permissions") from error


def _files(place: Path, pattern: str) -> list[Path]:
    return sorted(file for file in place.glob(pattern) if file.is_file())


def _json(file: Path, kind: type | None = None) -> Any:
    """The value of a file; any problem becomes a one-line error."""
    _check_readable(file)
    try:
        value = json.loads(file.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise bad_input(file, "is not valid JSON", SAVE_AGAIN) from error
    if kind is not None and not isinstance(value, kind):
        raise bad_input(file, f"must be a JSON {'object' if kind is dict else 'list'}", SAVE_AGAIN)
    return value


def read_settings(file: Path) -> dict[str, Any]:
    """A configuration file of a model; empty if it does not exist."""
    return _json(file, dict) if file.exists() else {}
