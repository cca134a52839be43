"""Teacher scores on another scale, for teachers whose raw logits do not suit an objective.

Off by default. The papers distil raw logits, and a temperature already divides them. Standardise when

- the scores come from a model whose scale is unknown or drifts (an LLM's 0-100, BM25), with `standardise_global`: one
  mean and one standard deviation for all lists, so that "this query has no good document" is kept; or
- each query has a different scale, with `standardise_list`. The price: a list in which the teacher saw little
  difference is stretched to the same spread as one with a clear winner, so its noise is learnt as if it were an order.

These change the teacher's signal before any objective uses it. Neither is needed to remove a constant shift from a
softmax or margin objective, which ignore it.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from limbeck.errors import LimbeckError

RESOLUTION = 1e-6  # a spread below this share of the scores' size is rounding, not an order


def standardise_list(scores: Tensor, mask: Tensor) -> Tensor:
    """Zero mean and unit (population) standard deviation over the scored documents of each list. [B, K]

    If the teacher gave no score, or for padding, the result is NaN: not scored. A list of one document, or one whose
    scores are all equal, becomes zeros: the teacher has no preference.
    """
    keep = mask & ~scores.isnan()
    values = torch.where(keep, scores.double(), 0.0)
    n = keep.sum(-1, keepdim=True).clamp(min=1)
    deviations = torch.where(keep, values - values.sum(-1, keepdim=True) / n, 0.0)
    spread = (deviations.square().sum(-1, keepdim=True) / n).sqrt()
    varied = spread > RESOLUTION * values.abs().amax(-1, keepdim=True)
    standardised = torch.where(varied, deviations / torch.where(varied, spread, 1.0), 0.0)
    return torch.where(keep, standardised, math.nan).to(_at_least_float32(scores))


def standardise_global(scores: Tensor, mean: float, std: float) -> Tensor:
    """Subtract one mean from all scores and divide by one standard deviation; NaN stays NaN. [B, K]"""
    if not math.isfinite(mean) or not 0 < std < math.inf:
        raise LimbeckError(
            f"teacher scores cannot be standardised by mean {mean} and standard deviation {std}; "
            "use a teacher whose scores vary, or `standardise: none`"
        )
    return ((scores.double() - mean) / std).to(_at_least_float32(scores))


def _at_least_float32(scores: Tensor) -> torch.dtype:
    return torch.promote_types(scores.dtype, torch.float32)
