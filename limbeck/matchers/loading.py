"""Load any matcher from a folder or a hub name."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path

from safetensors import SafetensorError

from limbeck.errors import LimbeckError
from limbeck.files import recover_directory
from limbeck.matchers.base import Matcher
from limbeck.matchers.building import first_line
from limbeck.matchers.colbert import ColBERT
from limbeck.matchers.cross_encoder import CrossEncoder
from limbeck.matchers.dipair import CONFIG, DiPair
from limbeck.matchers.dual_encoder import DualEncoder
from limbeck.matchers.half import use_bf16
from limbeck.matchers.names import resolve
from limbeck.matchers.poly_encoder import PolyEncoder

Loadable = type[CrossEncoder] | type[DualEncoder] | type[ColBERT] | type[DiPair]
OWN: dict[str, Loadable] = {
    DiPair.kind: DiPair,
    PolyEncoder.kind: PolyEncoder,
}  # kinds that sentence-transformers does not have

KINDS: dict[str, Loadable] = {
    "CrossEncoder": CrossEncoder,
    "SentenceTransformer": DualEncoder,
    "MultiVectorEncoder": ColBERT,
    "ColBERT": ColBERT,  # as PyLate writes it
}


def load(name: str | Path, revision: str | None = None, bf16: bool = False) -> Matcher:
    """The matcher in a folder or under a hub name: a cross-encoder, a dual encoder or a ColBERT, as its files say.

    With `bf16` its transformer computes in bfloat16.
    """
    with suppress(LimbeckError, OSError):  # a place that cannot be written has nothing to recover
        recover_directory(Path(str(name)).expanduser())
    path = resolve(name, revision)
    if Path(path).is_dir():
        path = str(model_folder(path))  # a run directory stands for its student
    try:
        matcher = _kind(path, revision).from_pretrained(path, revision=revision)
        matcher.folder = Path(path)
        return use_bf16(matcher) if bf16 else matcher
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RuntimeError, SafetensorError) as error:
        problem = f"cannot be loaded as a model ({first_line(error)})"
        raise LimbeckError(f"{name}: {problem}; give a model's folder or a hub name") from error


def model_folder(name: str | Path) -> Path:
    """Where the files of a model lie that is named by its folder or its run directory."""
    folder = Path(str(name)).expanduser()
    return folder / "student" if not (folder / "config.json").exists() and _is_model(folder / "student") else folder


def _is_model(folder: Path) -> bool:
    return any((folder / name).exists() for name in ("modules.json", CONFIG))


def _kind(path: str, revision: str | None) -> Loadable:
    """What the files say; a plain transformers folder tells by its architecture."""
    own = _read(path, CONFIG, revision)
    if own is not None and own.get("kind") in OWN:
        return OWN[own["kind"]]
    config = _read(path, "config_sentence_transformers.json", revision)
    if config and config.get("model_type"):
        kind = config["model_type"]
        if kind not in KINDS:
            raise LimbeckError(
                f"{path}: a {kind} cannot be used here; give a cross-encoder, a dual encoder or a ColBERT"
            )
        return KINDS[kind]
    if _read(path, "modules.json", revision):
        return DualEncoder
    architectures = (_read(path, "config.json", revision) or {}).get("architectures") or []
    if any(name.endswith("ForSequenceClassification") for name in architectures):
        return CrossEncoder
    if "HF_ColBERT" in architectures:  # as Stanford's ColBERT writes it
        return ColBERT
    return DualEncoder


def _read(path: str, file: str, revision: str | None) -> dict | None:
    """A JSON file of a model, local or on the hub; None where it has none."""
    local = Path(path) / file
    if Path(path).is_dir():
        return json.loads(local.read_text(encoding="utf-8")) if local.exists() else None
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import EntryNotFoundError

    try:
        return json.loads(Path(hf_hub_download(path, file, revision=revision)).read_text(encoding="utf-8"))
    except EntryNotFoundError:
        return None
