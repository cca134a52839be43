"""Several runs of one setting with different seeds: their mean and spread."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from limbeck.report.analyses.base import Result


class Spread(Result):
    """Mean, standard deviation over seeds (divided by n - 1; None for a single seed) and extremes."""

    count: int
    mean: float
    std: float | None
    low: float
    high: float

    @property
    def error_bar(self) -> tuple[float, float]:
        """One standard deviation on both sides; no bar for a single seed."""
        return self.mean - (self.std or 0.0), self.mean + (self.std or 0.0)

    @property
    def variance_of_mean(self) -> float:
        """The squared standard error of the mean; 0 for a single seed, where it is unknown."""
        return (self.std or 0.0) ** 2 / self.count

    def __str__(self) -> str:
        return f"{self.mean:.3f}" if self.std is None else f"{self.mean:.3f} ± {self.std:.3f}"


def spread(values: Sequence[float]) -> Spread:
    """Summarise the values of several seeds."""
    sample = np.asarray(values, dtype=np.float64)
    return Spread(
        count=len(sample),
        mean=float(sample.mean()),
        std=float(sample.std(ddof=1)) if len(sample) > 1 else None,
        low=float(sample.min()),
        high=float(sample.max()),
    )
