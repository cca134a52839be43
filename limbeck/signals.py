"""What passes between teacher, student and objective.

One batch holds B queries and, for each, a list of K candidate documents. When every in-batch pair counts,
K is simply the number of distinct documents in the batch; no objective needs to know which it is.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class Signals:
    """What a matcher showed while it worked. A matcher fills in what was asked of it, and no more.

    A teacher's NaN score means "not scored": a pair that the teacher never saw.
    """

    scores: Tensor | None = None  # [B, K] raw logits, never passed through an activation
    queries: Tensor | None = None  # [B, dim] pooled query embeddings
    documents: Tensor | None = None  # [B, K, dim] pooled document embeddings


@dataclass(frozen=True)
class Targets:
    """What is known of a batch besides what the matchers show."""

    mask: Tensor  # [B, K] bool: False is padding
    labels: Tensor  # [B, K] graded or soft relevance; NaN where nobody judged
