"""Cross-encoder folders with modules of Limbeck: only Limbeck can load them, by name.

sentence-transformers would import a class from elsewhere only with `trust_remote_code`.
"""

from __future__ import annotations

import json
from pathlib import Path

from sentence_transformers.base.modules import Transformer
from torch import nn

from limbeck.matchers.dual_pooling import DualPooling
from limbeck.matchers.safe_loading import HERE_ONLY
from limbeck.matchers.segments import JointTransformer, SegmentPooling


def load_own_modules(folder: Path) -> list[nn.Module] | None:
    """The modules of a folder that ends in a SegmentPooling or a DualPooling; None if it does not."""
    listing = folder / "modules.json"
    if not listing.exists():
        return None
    entries = json.loads(listing.read_text(encoding="utf-8"))
    last = entries[-1]["type"] if entries else None
    if last not in (_name(SegmentPooling), _name(DualPooling)):
        return None
    place = folder / entries[-1]["path"]
    kind = JointTransformer if entries[0]["type"] == _name(JointTransformer) else Transformer
    transformer = kind.load(str(folder), **HERE_ONLY)
    if last == _name(SegmentPooling):
        return [transformer, SegmentPooling.restore(place)]
    return [transformer, DualPooling.restore(place, transformer.tokenizer)]


def _name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__name__}"
