"""Load any matcher from a folder or a hub name."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from limbeck.errors import LimbeckError
from limbeck.files import put_back_directory
from limbeck.matchers.base import Matcher
from limbeck.matchers.colbert import ColBERT
from limbeck.matchers.cross_encoder import CrossEncoder
from limbeck.matchers.dipair import CONFIG, DiPair
from limbeck.matchers.dual_encoder import DualEncoder
from limbeck.matchers.folder_checks import read_settings
from limbeck.matchers.half import use_bf16
from limbeck.matchers.names import local_folder
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
        put_back_directory(Path(str(name)).expanduser())
    folder = model_folder(local_folder(name, revision))  # a run directory stands for its student
    matcher = _kind(folder).from_pretrained(folder)
    matcher.folder = Path(folder)
    return use_bf16(matcher) if bf16 else matcher


def model_folder(name: str | Path) -> Path:
    """Where the files of a model lie that is named by its folder or its run directory."""
    folder = Path(str(name)).expanduser()
    return folder / "student" if not (folder / "config.json").exists() and _is_model(folder / "student") else folder


def _is_model(folder: Path) -> bool:
    return any((folder / name).exists() for name in ("modules.json", CONFIG))


def _kind(folder: Path) -> Loadable:
    """What the files say; a plain transformers folder tells by its architecture."""
    if not folder.is_dir():
        raise LimbeckError(f"{folder}: is not a folder; give a model's folder or a hub name")
    own = read_settings(folder / CONFIG)
    if own.get("kind") in OWN:
        return OWN[own["kind"]]
    kind = read_settings(folder / "config_sentence_transformers.json").get("model_type")
    if kind:
        if kind not in KINDS:
            raise LimbeckError(
                f"{folder}: a {kind} cannot be used here; give a cross-encoder, a dual encoder or a ColBERT"
            )
        return KINDS[kind]
    if (folder / "modules.json").exists():
        return DualEncoder
    architectures = read_settings(folder / "config.json").get("architectures") or []
    if any(str(name).endswith("ForSequenceClassification") for name in architectures):
        return CrossEncoder
    if "HF_ColBERT" in architectures:  # as Stanford's ColBERT writes it
        return ColBERT
    return DualEncoder
