import re

import pytest

from limbeck.errors import LimbeckError
from limbeck.report.analyses import TrainTest, generalisation, generalisation_section
from limbeck.report.analyses.generalisation import Generalisation
from limbeck.report.blocks import PlotFigure
from tests.report.analyses.helpers import comes_back, shown

CROSS = {128: (0.385, 0.334), 256: (0.427, 0.350), 512: (0.493, 0.360), 768: (0.522, 0.364)}
DUAL = {128: (0.317, 0.249), 256: (0.407, 0.282), 512: (0.491, 0.293), 768: (0.518, 0.310)}


def points(name: str, curve: dict[int, tuple[float, float]]) -> list[TrainTest]:
    return [TrainTest(name, size, *qualities) for size, qualities in curve.items()]


def verdicts(result: Generalisation) -> dict[str, list[str | None]]:
    return {model.name: [each.verdict for each in model.sizes] for model in result.models}


def test_the_papers_own_table_says_generalisation() -> None:
    result = generalisation([*points("CA", CROSS), *points("DE", DUAL)])
    found = verdicts(result)
    assert found["CA"] == [None] * 4
    assert found["DE"][1:] == ["generalisation"] * 3
    assert found["DE"][0] in ("capacity", "both")
    text = shown(generalisation_section(result))
    assert "DE is as good as CA on the queries of training and worse on new ones" in text
    assert "it lacks generalisation, not capacity (train 0.518, test 0.310 MRR@10 at size 768; both at 128)" in text
    assert comes_back(result)


@pytest.mark.parametrize(
    ("train", "test", "verdict"),
    [
        (0.50, 0.40, "no gap"),
        (0.40, 0.39, "no gap"),  # distillation: worse on train, as good on test
        (0.49, 0.30, "generalisation"),
        (0.60, 0.30, "generalisation"),
        (0.40, 0.30, "capacity"),
        (0.45, 0.25, "both"),
    ],
)
def test_the_rule_of_the_verdict(train: float, test: float, verdict: str) -> None:
    result = generalisation([("teacher", 8, 0.5, 0.4, 0), ("student", 8, train, test, 0)])
    assert verdicts(result)["student"] == [verdict]


def test_models_of_one_size_are_judged_without_a_picture() -> None:
    result = generalisation([("teacher", 1, 0.5, 0.4, 0), ("student", 1, 0.49, 0.3, 0)], "ndcg@10", setting="")
    section = generalisation_section(result)
    text = shown(section)
    assert "not capacity (train 0.490, test 0.300 nDCG@10)." in text and "grows" not in text
    assert not any(isinstance(block, PlotFigure) for block in section.blocks)
    assert comes_back(result)


def test_means_spread_and_gap_are_over_seeds() -> None:
    (model,) = generalisation([("m", 8, 0.5, 0.4, 0), ("m", 8, 0.7, 0.3, 1), ("m", 4, 0.2, 0.1, 0)]).models
    small, large = model.sizes
    assert (small.size, large.size) == (4, 8)
    assert large.train.mean == pytest.approx(0.6)
    assert large.test.mean == pytest.approx(0.35)
    assert large.gap.mean == pytest.approx((0.1 + 0.4) / 2)
    assert large.gap.std == pytest.approx(((0.15**2) * 2) ** 0.5)  # seed by seed, not the difference of two spreads
    assert small.gap.std is None


def test_a_difference_within_the_noise_of_seeds_is_none() -> None:
    quiet = [("teacher", 8, 0.5, 0.4, seed) for seed in range(3)]
    steady = [("student", 8, 0.5, 0.34, seed) for seed in range(3)]
    noisy = [("student", 8, 0.5, test, seed) for seed, test in enumerate((0.24, 0.34, 0.44))]
    assert verdicts(generalisation([*quiet, *steady]))["student"] == ["generalisation"]
    assert verdicts(generalisation([*quiet, *noisy]))["student"] == ["no gap"]


def test_a_reference_of_one_size_is_compared_with_all() -> None:
    result = generalisation([*points("DE", DUAL), TrainTest("CA", 768, 0.522, 0.364)], reference="CA")
    assert [model.name for model in result.models] == ["CA", "DE"]
    assert verdicts(result)["DE"][-1] == "generalisation"
    assert verdicts(result)["DE"][0] != "generalisation"


def test_train_and_test_of_a_model_share_a_colour_and_differ_in_dashes() -> None:
    section = generalisation_section(generalisation([*points("CA", CROSS), *points("DE", DUAL)]))
    html = "".join(block.html() for block in section.blocks)
    classes = re.findall(r'<polyline points="[^"]*" class="line ([^"]*)"', html)[:4]
    assert classes == ["series-0 dash-1", "series-0 dash-0", "series-1 dash-1", "series-1 dash-0"]


def test_one_model_alone_has_a_gap_and_no_verdict() -> None:
    assert "m loses 0.100 from train to test at size 8." in shown(
        generalisation_section(generalisation([("m", 8, 0.5, 0.4, 0)]))
    )


@pytest.mark.parametrize(
    ("given", "options", "message"),
    [
        ([], {}, "there are no points; give"),
        ([("m", 8, float("nan"), 0.4, 0)], {}, "m, size 8, seed 0: the quality is nan; measure"),
        ([("m", 8, 0.5, 0.4, 0), ("m", 8, 0.6, 0.4, 0)], {}, "m, size 8, seed 0: given twice"),
        ([("teacher", 8, 0.5, 0.4, 0)], {"reference": "techer"}, "did you mean 'teacher'"),
    ],
)
def test_points_that_cannot_be_used_are_refused(given: list, options: dict, message: str) -> None:
    with pytest.raises(LimbeckError, match=re.escape(message)):
        generalisation(given, **options)
