"""Interactions: the part of a matcher that runs per pair, over encodings that are ready."""

from limbeck.matchers.interactions.dot import Cosine, Dot, Interaction
from limbeck.matchers.interactions.maxsim import MaxSim, TokenVectors

INTERACTIONS: dict[str, type[Interaction]] = {"dot": Dot, "cosine": Cosine}

__all__ = ["INTERACTIONS", "Cosine", "Dot", "Interaction", "MaxSim", "TokenVectors"]
