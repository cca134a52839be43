"""Limit the tokens that a matcher reads, to measure the loss in quality and the gain in speed."""

from __future__ import annotations

from sentence_transformers.base.modules import Transformer
from sentence_transformers.sentence_transformer.modules import StaticEmbedding

from limbeck.matchers.base import Matcher
from limbeck.matchers.chunks import SIDES
from limbeck.matchers.cross_encoder import CrossEncoder
from limbeck.matchers.dual_encoder import DualEncoder
from limbeck.matchers.head_matcher import HeadMatcher
from limbeck.matchers.segments import JointTransformer
from limbeck.matchers.static import truncate


def shorten(matcher: Matcher, query: int, document: int) -> None:
    """Make a matcher read at most so many tokens of each text, including special tokens.

    A cross-encoder that reads both texts as one sequence gets the sum of both and truncates the longer text. A limit
    can only be lowered.
    """
    if isinstance(matcher, HeadMatcher):
        matcher.shorten(query, document)
    if isinstance(matcher, DualEncoder):
        _shorten_static(matcher, query, document)
    for part in matcher.modules():
        if not isinstance(part, Transformer):
            continue
        most = part.max_seq_length
        if isinstance(matcher, CrossEncoder) and not isinstance(part, JointTransformer):
            part.max_seq_length = _least(most, query + document)
            continue
        part.query_length = _least(part.query_length or most, query)
        part.document_length = _least(part.document_length or most, document)
        part.max_seq_length = max(part.query_length, part.document_length)
        filled = part.query_expansion
        if filled and filled.get("length"):
            part.query_expansion = {**filled, "length": _least(filled["length"], query)}


def _shorten_static(matcher: DualEncoder, query: int, document: int) -> None:
    """If both sides share a table, both read up to the larger limit."""
    parts = [matcher.tower.transformer(side) for side in SIDES]
    for part, own in zip(parts, (query, document), strict=True):
        if isinstance(part, StaticEmbedding):
            truncate(part, max(query, document) if parts[0] is parts[1] else own)


def _least(current: int | None, asked: int) -> int:
    return asked if current is None else min(current, asked)
