import pytest

from limbeck.report.analyses.spread import spread
from tests.report.analyses.helpers import comes_back


def test_the_spread_of_three_seeds_by_hand() -> None:
    found = spread([1.0, 2.0, 6.0])
    assert (found.count, found.mean, found.low, found.high) == (3, 3.0, 1.0, 6.0)
    assert found.std == pytest.approx(7**0.5)  # squares 4, 1, 9 over n - 1 = 2
    assert found.error_bar == pytest.approx((3 - 7**0.5, 3 + 7**0.5))
    assert found.variance_of_mean == pytest.approx(7 / 3)
    assert str(found) == "3.000 ± 2.646"
    assert comes_back(found)


def test_one_seed_has_no_deviation() -> None:
    found = spread([0.5])
    assert found.std is None
    assert found.error_bar == (0.5, 0.5)
    assert str(found) == "0.500"
