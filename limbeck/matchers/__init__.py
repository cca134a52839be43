"""Matchers: models that score a query against a document."""

from limbeck.matchers.base import Matcher, TextBatch
from limbeck.matchers.build import build
from limbeck.matchers.colbert import ColBERT
from limbeck.matchers.cross_encoder import CrossEncoder
from limbeck.matchers.dipair import DiPair
from limbeck.matchers.dual_encoder import DualEncoder
from limbeck.matchers.load import load
from limbeck.matchers.poly_encoder import PolyEncoder
from limbeck.matchers.spec import MatcherSpec

__all__ = [
    "ColBERT",
    "CrossEncoder",
    "DiPair",
    "DualEncoder",
    "Matcher",
    "MatcherSpec",
    "PolyEncoder",
    "TextBatch",
    "build",
    "load",
]
