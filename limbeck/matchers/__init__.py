"""Matchers: models that score a query against a document."""

from limbeck.matchers.base import Matcher, TextBatch
from limbeck.matchers.build import MatcherSpec, build
from limbeck.matchers.cross_encoder import CrossEncoder
from limbeck.matchers.dual_encoder import DualEncoder
from limbeck.matchers.load import load

__all__ = ["CrossEncoder", "DualEncoder", "Matcher", "MatcherSpec", "TextBatch", "build", "load"]
