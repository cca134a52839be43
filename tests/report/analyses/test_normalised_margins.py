import numpy as np
import pytest

from limbeck.errors import LimbeckError
from limbeck.report.analyses import normalised_margins, normalised_margins_section
from tests.report.analyses.helpers import comes_back, shown

QRELS = {"q1": {"a": 1, "b": 1}, "q2": {"b": 1}}
RUN = {"q1": {"a": 6.0, "b": 3.0, "c": 2.0, "d": 4.0}, "q2": {"a": 105.0, "b": 100.0}}


def test_margins_are_differences_within_a_query_over_the_largest_range_within_one() -> None:
    (model,) = normalised_margins({"m": RUN}, QRELS).models
    assert model.rho == 5  # q1 spans 4, q2 spans 5; all scores together would span 103
    expected = np.array([6 - 2, 6 - 4, 3 - 2, 3 - 4, 100 - 105]) / 5
    assert model.margins.count == 5
    assert model.margins.mean == pytest.approx(expected.mean())
    assert model.margins.std == pytest.approx(expected.std())
    assert model.margins.median == pytest.approx(np.median(expected))
    assert model.wrong == pytest.approx(2 / 5)
    assert (model.margins.low, model.margins.high) == (-1, 1)
    assert sum(model.margins.shares[: len(model.margins.shares) // 2]) == pytest.approx(2 / 5)  # left of zero


def test_scale_and_shift_of_a_model_do_not_matter() -> None:
    other = {query: {d: 8 * s - 3 for d, s in scores.items()} for query, scores in RUN.items()}
    one, two = normalised_margins({"m": RUN, "n": other}, QRELS).models
    assert two.rho == 8 * one.rho
    assert two.margins == one.margins


def test_a_tie_is_not_in_wrong_order() -> None:
    (model,) = normalised_margins({"m": {"q2": {"a": 1.0, "b": 1.0, "c": 0.0}}}, QRELS).models
    assert model.wrong == 0


def test_constant_scores_have_no_margins() -> None:
    with pytest.raises(LimbeckError, match="m: every document of a query has the same score; use"):
        normalised_margins({"m": {"q2": {"a": 1.0, "b": 1.0}}}, QRELS)


def test_the_section_puts_the_larger_mean_first() -> None:
    better = {"q1": {"a": 6.0, "b": 5.0, "c": 2.0, "d": 4.0}, "q2": {"a": 1.0, "b": 5.0}}
    result = normalised_margins({"dual <b>": RUN, "cross": better}, QRELS)
    assert comes_back(result)
    text = shown(normalised_margins_section(result))
    assert "Mean margin: cross +0.70 (0.0% of pairs in wrong order); dual <b> +0.04 (40.0%" in text
