"""Load any matcher from a folder or a hub name."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from limbeck.errors import LimbeckError, bad_input
from limbeck.files import put_back_directory
from limbeck.matchers.after_loading import finished
from limbeck.matchers.base import Matcher
from limbeck.matchers.bf16 import use_bf16
from limbeck.matchers.config import DEFAULT_KIND, architectures
from limbeck.matchers.device_choice import using_device
from limbeck.matchers.folder_checks import OWN_CONFIG as CONFIG
from limbeck.matchers.folder_checks import read_settings
from limbeck.matchers.names import local_folder, model_folder


def load(name: str | Path, revision: str | None = None, bf16: bool = False, device: str | None = None) -> Matcher:
    """The matcher in a folder, in a run's directory or on the hub; its files determine the architecture.

    With `bf16` its transformer computes in bfloat16. Without a `device`, LIMBECK_DEVICE decides; otherwise it uses a
    GPU if there is one, or the CPU.

    >>> import limbeck as lb
    >>> model = lb.load("runs/mine")
    >>> ranking = model.rank("copy a file", ["sort a list", "copy one file to a folder"])
    >>> sorted(position for position, score in ranking)
    [0, 1]
    """
    with suppress(LimbeckError, OSError):  # if the folder cannot be written, there is nothing to recover
        put_back_directory(Path(str(name)).expanduser())
    folder = model_folder(local_folder(name, revision))  # for a run directory, its student
    with using_device(device):
        matcher = architecture_in(folder).from_pretrained(folder)
    matcher.folder = Path(folder)
    return finished(use_bf16(matcher) if bf16 else matcher)


def architecture_in(folder: Path) -> type[Matcher]:
    """The kind of a model, from its files; for a plain transformers folder, from its architecture."""
    if not folder.is_dir():
        raise LimbeckError(f"{folder}: is not a folder; give a model's folder or a hub name")
    known = architectures()
    own = read_settings(folder / CONFIG).get("kind")
    if own is not None:
        if own not in known:
            remedy = "install the plugin that defines it, or give --plugin FILE"
            raise bad_input(folder / CONFIG, f"is a {own!r}, a kind that limbeck does not know", remedy)
        return known[own]
    told = read_settings(folder / "config_sentence_transformers.json").get("model_type")
    if told:
        found = next((kind for kind in known.values() if told in kind.model_types), None)
        if found is None:
            remedy = "give a cross-encoder, a dual encoder or a ColBERT"
            raise LimbeckError(f"{folder}: a {told} cannot be used here; {remedy}")
        return found
    plain = not (folder / "modules.json").exists()
    return next((kind for kind in known.values() if plain and kind.reads(folder)), known[DEFAULT_KIND])
