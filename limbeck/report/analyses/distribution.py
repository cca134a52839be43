"""A sample in few numbers: however many there were, a result keeps their moments, quantiles and binned shares."""

from __future__ import annotations

import numpy as np

from limbeck.report.analyses.base import Result

QUANTILES = (0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99)
BINS = 40


class Distribution(Result):
    """Mean, standard deviation (of the sample as it is: divided by n), quantiles, and shares in equal bins."""

    count: int
    mean: float
    std: float
    quantiles: dict[float, float]  # share below -> value
    low: float  # of the first bin
    high: float  # of the last bin
    shares: tuple[float, ...]

    @property
    def median(self) -> float:
        return self.quantiles[0.5]


def distribution(values: np.ndarray, low: float, high: float, bins: int = BINS) -> Distribution:
    """Summarise a sample within low..high; a range without width is widened, so that a single value has a bin."""
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
    """The share of area that two distributions over the same bins have in common: 0 apart, 1 alike."""
    return float(np.minimum(first.shares, second.shares).sum())
