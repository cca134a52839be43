import numpy as np
import pytest

from limbeck.report.analyses.distribution import BINS, QUANTILES, distribution, overlap
from tests.report.analyses.helpers import comes_back


def test_moments_quantiles_and_shares_are_numpys() -> None:
    values = np.random.default_rng(1).normal(3, 2, size=1000)
    low, high = float(values.min()), float(values.max())
    found = distribution(values, low, high)
    assert found.count == 1000
    assert found.mean == pytest.approx(values.mean())
    assert found.std == pytest.approx(values.std())
    assert list(found.quantiles.values()) == pytest.approx(np.quantile(values, QUANTILES).tolist())
    assert found.median == pytest.approx(np.median(values))
    assert len(found.shares) == BINS
    assert sum(found.shares) == pytest.approx(1)
    assert comes_back(found)


def test_equal_values_get_a_separate_bin() -> None:
    found = distribution(np.full(4, 7.0), 7.0, 7.0, bins=2)
    assert (found.low, found.high) == (6.5, 7.5)
    assert found.shares == (0.0, 1.0)
    assert found.std == 0


def test_overlap_is_the_area_in_common() -> None:
    first = distribution(np.array([0.1, 0.2, 0.3, 0.9]), 0, 1, bins=2)  # 3/4, 1/4
    second = distribution(np.array([0.1, 0.7, 0.8, 0.9]), 0, 1, bins=2)  # 1/4, 3/4
    apart = distribution(np.array([0.9, 0.8]), 0, 1, bins=2)
    assert overlap(first, second) == pytest.approx(0.5)
    assert overlap(first, first) == pytest.approx(1)
    assert overlap(first, apart) == pytest.approx(0.25)
