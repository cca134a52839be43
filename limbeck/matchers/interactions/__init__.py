"""Interactions: the part of a matcher that runs per pair, over precomputed encodings.

There is one file for each kind of interaction. Importing this package registers all of them.
"""

from limbeck.matchers.encoding import TokenVectors
from limbeck.matchers.interactions.base import INTERACTIONS, Interaction, Prepared, interaction, interaction_named
from limbeck.matchers.interactions.deformer import JointLayers
from limbeck.matchers.interactions.dipair import CosineHead, FeedForwardHead, TransformerHead
from limbeck.matchers.interactions.dot import Cosine, Dot
from limbeck.matchers.interactions.fusion import Fusion
from limbeck.matchers.interactions.maxsim import MaxSim, MeanMaxSim
from limbeck.matchers.interactions.poly import PolyAttention
from limbeck.matchers.interactions.virt import VirtInteraction

__all__ = [
    "INTERACTIONS",
    "Cosine",
    "CosineHead",
    "Dot",
    "FeedForwardHead",
    "Fusion",
    "Interaction",
    "JointLayers",
    "MaxSim",
    "MeanMaxSim",
    "PolyAttention",
    "Prepared",
    "TokenVectors",
    "TransformerHead",
    "VirtInteraction",
    "interaction",
    "interaction_named",
]
