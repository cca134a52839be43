"""Fewer tokens than a matcher was made to read: what would it lose, and how much faster would it be?"""

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
    """Let a matcher read at most so many tokens of each text, special ones included.

    A cross-encoder that reads both texts as one sequence gets their sum, and takes from the longer text what is too
    much. No matcher reads more than it did.
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
    """One table for both sides reads as much as the longer of them."""
    parts = [matcher.tower.transformer(side) for side in SIDES]
    for part, own in zip(parts, (query, document), strict=True):
        if isinstance(part, StaticEmbedding):
            truncate(part, max(query, document) if parts[0] is parts[1] else own)


def _least(current: int | None, asked: int) -> int:
    return asked if current is None else min(current, asked)
