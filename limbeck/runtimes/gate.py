"""The quality gate: how much a runtime may cost. It decides by nDCG@10 where queries are judged, else by closeness."""

from __future__ import annotations

from dataclasses import dataclass

CLOSENESS = 0.99  # the least mean cosine, or correlation, to torch's outputs
LOSS = 0.005  # the most that nDCG@10 may fall, as a share of torch's


@dataclass(frozen=True)
class Gate:
    """Limits; without one for the loss, closeness decides even where queries are judged."""

    closeness: float = CLOSENESS
    loss: float | None = LOSS

    def passes(self, closeness: float, lost: float | None) -> bool:
        """Whether the quality is kept; NaN is not."""
        return closeness >= self.closeness if lost is None or self.loss is None else lost <= self.loss


def lost(ndcg: float | None, exact: float | None) -> float | None:
    """The share of nDCG@10 that is lost, negative if it rose; None where nothing is judged, or nothing was found."""
    return 1 - ndcg / exact if ndcg is not None and exact else None
