"""Interactions: the part of a matcher that runs per pair, over encodings that are ready.

One file for each way in which texts can meet. Importing this package registers them all.
"""

from limbeck.matchers.encoding import TokenVectors
from limbeck.matchers.interactions.base import INTERACTIONS, Interaction, Prepared, interaction, interaction_named
from limbeck.matchers.interactions.dipair import CosineHead, FeedForwardHead, TransformerHead
from limbeck.matchers.interactions.dot import Cosine, Dot
from limbeck.matchers.interactions.maxsim import MaxSim, MeanMaxSim
from limbeck.matchers.interactions.poly import PolyAttention

__all__ = [
    "INTERACTIONS",
    "Cosine",
    "CosineHead",
    "Dot",
    "FeedForwardHead",
    "Interaction",
    "MaxSim",
    "MeanMaxSim",
    "PolyAttention",
    "Prepared",
    "TokenVectors",
    "TransformerHead",
    "interaction",
    "interaction_named",
]
