"""Matchers: models that score a query against a document.

Names are imported on first use: a worker that scores pairs only needs an interaction, and imports no model library.
(So no module here may have the same name as something that the package exports.)
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from limbeck.matchers.base import Matcher, TextBatch
    from limbeck.matchers.building import build
    from limbeck.matchers.colbert import ColBERT
    from limbeck.matchers.config import MatcherConfig, matcher_config
    from limbeck.matchers.cross_encoder import CrossEncoder
    from limbeck.matchers.deformer import DeFormer
    from limbeck.matchers.dipair import DiPair
    from limbeck.matchers.dual_encoder import DualEncoder
    from limbeck.matchers.loading import load
    from limbeck.matchers.poly_encoder import PolyEncoder
    from limbeck.matchers.sentence_t5 import SentenceT5
    from limbeck.matchers.siamese import Siamese
    from limbeck.matchers.virt import Virt

__all__ = [
    "ColBERT",
    "CrossEncoder",
    "DeFormer",
    "DiPair",
    "DualEncoder",
    "Matcher",
    "MatcherConfig",
    "PolyEncoder",
    "SentenceT5",
    "Siamese",
    "TextBatch",
    "Virt",
    "build",
    "load",
    "matcher_config",
]

_HOME = {
    "Matcher": "limbeck.matchers.base",
    "TextBatch": "limbeck.matchers.base",
    "build": "limbeck.matchers.building",
    "ColBERT": "limbeck.matchers.colbert",
    "CrossEncoder": "limbeck.matchers.cross_encoder",
    "DeFormer": "limbeck.matchers.deformer",
    "DiPair": "limbeck.matchers.dipair",
    "DualEncoder": "limbeck.matchers.dual_encoder",
    "load": "limbeck.matchers.loading",
    "PolyEncoder": "limbeck.matchers.poly_encoder",
    "SentenceT5": "limbeck.matchers.sentence_t5",
    "Siamese": "limbeck.matchers.siamese",
    "Virt": "limbeck.matchers.virt",
    "MatcherConfig": "limbeck.matchers.config",
    "matcher_config": "limbeck.matchers.config",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)
