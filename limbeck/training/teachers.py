"""Teachers provide the signals that a batch needs.

A live teacher runs inside the step and sees every in-batch pair. A cached teacher reads stored signals: scores by pair,
embeddings by text. Objectives do not know the difference.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from limbeck.errors import LimbeckError
from limbeck.matchers.base import Matcher, PreparedBatch, TextBatch, as_parts
from limbeck.signals import TEXT_SIGNALS, Signals, Targets
from limbeck.training.stored_outputs import StoredOutputs

EMBEDDINGS = TEXT_SIGNALS


@dataclass
class CachedTeacher:
    """Reads stored signals of a batch's texts and pairs, only those that objectives need."""

    needs: frozenset[str]
    embeddings: StoredOutputs | None = None  # embeddings of texts at each position

    def signals(self, batch: TextBatch, scores: Callable[[], Tensor]) -> Signals:
        """`scores` returns the stored scores of the batch's lists [B, K]."""
        queries = documents = None
        if "queries" in self.needs:
            queries = self._embedded(batch.own_queries, 0)
        if "documents" in self.needs:
            documents = self._embedded([" ".join(as_parts(document)) for document in batch.documents], 1)
        return Signals(scores() if "scores" in self.needs else None, queries, documents)

    def _embedded(self, texts: list[str], position: int) -> Tensor:
        assert self.embeddings is not None
        return torch.from_numpy(self.embeddings(texts, position))


def live_signals(teacher: Matcher, inputs: PreparedBatch | None, needs: frozenset[str], targets: Targets) -> Signals:
    """A teacher's signals for a batch while the student trains on it."""
    with torch.no_grad(), torch.autocast(targets.mask.device.type, enabled=False):
        shown: Signals = teacher(inputs, needs)
    if shown.scores is not None and not torch.isfinite(shown.scores[targets.mask]).all():
        raise LimbeckError("the teacher gave a score that is not a finite number; its weights are damaged")
    return shown


def require_signals(who: str, matcher: Matcher, needs: frozenset[str]) -> None:
    """Refuse a matcher that lacks signals that the objectives need, before training."""
    missing = sorted(needs - matcher.shows)
    if missing:
        problem = f"the objectives need {', '.join(missing)} of the {who}, but a {matcher.kind} gives only"
        raise LimbeckError(f"{problem} {', '.join(sorted(matcher.shows))}; use other objectives, or another {who}")
