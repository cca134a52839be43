"""Training objectives. `base` has the rules for all objectives; each family has its own file.

A new family is a new file here, imported below so that its objectives are known by name.
"""

from limbeck.objectives.attention import virt
from limbeck.objectives.base import OBJECTIVES, Objective, objective
from limbeck.objectives.classes import class_ce, soft_class_ce
from limbeck.objectives.embeddings import match_embeddings
from limbeck.objectives.labels import binary_ce, focal, one_hot
from limbeck.objectives.margins import m3se, margin_mse
from limbeck.objectives.names import parse
from limbeck.objectives.proxies import match_joint, match_proxies
from limbeck.objectives.reconstruction import masked_lm, reconstruct
from limbeck.objectives.scale import standardise_global, standardise_list
from limbeck.objectives.scores import kl, mse, rank_distil, soft_binary_ce, softmax_ce

__all__ = [
    "OBJECTIVES",
    "Objective",
    "binary_ce",
    "class_ce",
    "focal",
    "kl",
    "m3se",
    "margin_mse",
    "masked_lm",
    "match_embeddings",
    "match_joint",
    "match_proxies",
    "mse",
    "objective",
    "one_hot",
    "parse",
    "rank_distil",
    "reconstruct",
    "soft_binary_ce",
    "soft_class_ce",
    "softmax_ce",
    "standardise_global",
    "standardise_list",
    "virt",
]
