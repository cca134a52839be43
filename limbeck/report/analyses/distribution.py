"""A summary of a sample of any size: moments, quantiles and shares in bins."""

from __future__ import annotations

import numpy as np

from limbeck.report.analyses.base import Result

QUANTILES = (0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99)
BINS = 40


class Distribution(Result):
    """Mean, population standard deviation (divided by n), quantiles, and shares in equal bins."""

    count: int
    mean: float
    std: float
    quantiles: dict[float, float]  # share below -> value
    low: float  # start of the first bin
    high: float  # end of the last bin
    shares: tuple[float, ...]

    @property
    def median(self) -> float:
        return self.quantiles[0.5]


def distribution(values: np.ndarray, low: float, high: float, bins: int = BINS) -> Distribution:
    """Summarise a sample within low..high; an empty range is widened, so that a single value has a bin."""
    if low == high:
        low, high = low - 0.5, high + 0.5
    counts, _ = np.histogram(values, bins=bins, range=(low, high))
    quantiles = zip(QUANTILES, np.quantile(values, QUANTILES).tolist(), strict=True)
    return Distribution(
        count=len(values),
        mean=float(values.mean()),
        std=float(values.std()),
        quantiles=dict(quantiles),
        low=low,
        high=high,
        shares=tuple((counts / len(values)).tolist()),
    )


def overlap(first: Distribution, second: Distribution) -> float:
    """The common area of two distributions over the same bins: 0 if disjoint, 1 if equal."""
    return float(np.minimum(first.shares, second.shares).sum())
