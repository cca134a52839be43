"""Which head a specification asks for."""

from __future__ import annotations

from limbeck.errors import LimbeckError
from limbeck.matchers.interactions.base import Interaction
from limbeck.matchers.interactions.dipair import CosineHead, FeedForwardHead, TransformerHead
from limbeck.matchers.interactions.poly import PolyAttention
from limbeck.matchers.spec import MatcherSpec


def make_head(spec: MatcherSpec, dim: int) -> Interaction:
    """What reads the kept vectors, of `dim` numbers each."""
    if spec.kind == "poly_encoder":
        return PolyAttention(dim)
    if spec.head in ("transformer", "transformer+cosine"):
        if dim % spec.head_heads:
            problem = f"head_heads: {spec.head_heads} heads cannot share vectors of {dim} numbers"
            raise LimbeckError(f"{problem}; choose a divisor of {dim}, or give a dim")
        return TransformerHead(
            spec.tokens,
            dim,
            spec.head_layers,
            spec.head_heads,
            spec.head_width,
            spec.outputs,
            spec.dropout,
            cosine=spec.head == "transformer+cosine",
        )
    if spec.head == "cosine":
        return CosineHead()
    return FeedForwardHead(spec.tokens, dim, spec.head_layers, spec.head_width, spec.outputs, spec.dropout)
