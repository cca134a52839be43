import re

import numpy as np
import pytest

from limbeck.errors import LimbeckError
from limbeck.evaluation.significance import bootstrap_interval
from limbeck.report.analyses import TrainTest, generalisation, generalisation_section
from limbeck.report.analyses.generalisation import Generalisation
from limbeck.report.blocks import PlotFigure, Table
from tests.report.analyses.helpers import comes_back, shown

QUERIES = 100


def qualities(mean: float, kind: str = "q", noise: float = 0.0, count: int = QUERIES) -> dict[str, float]:
    """Queries with exactly this mean; `noise` goes up and down in turn."""
    return {f"{kind}{number}": mean + (noise if number % 2 else -noise) for number in range(count)}


def point(
    name: str, train: float, test: float, size: float = 8, seed: int = 0, noise: tuple[float, float] = (0.0, 0.0)
) -> TrainTest:
    return TrainTest(name, size, qualities(train, "t", noise[0]), qualities(test, "n", noise[1]), seed)


def verdicts(result: Generalisation) -> dict[str, list[str | None]]:
    return {model.name: [each.verdict for each in model.sizes] for model in result.models}


@pytest.mark.parametrize(
    ("train", "test", "noise", "verdict"),
    [
        (0.50, 0.60, (0.1, 0.1), "no gap"),
        (0.40, 0.59, (0.1, 0.1), "no gap"),  # distillation: worse on train, as good on test
        (0.499, 0.50, (0.1, 0.1), "generalisation"),
        (0.60, 0.50, (0.1, 0.1), "generalisation"),
        (0.46, 0.56, (0.1, 0.1), "capacity"),
        (0.46, 0.555, (0.1, 0.1), "capacity"),  # the gaps differ by less than their noise
        (0.46, 0.48, (0.1, 0.1), "both"),
        (0.48, 0.56, (0.3, 0.1), "undecided"),  # train: nothing, or as much as on test
    ],
)
def test_the_rule_of_the_verdict(train: float, test: float, noise: tuple[float, float], verdict: str) -> None:
    """The teacher is better on test than on train: the test queries are easier, which must not matter."""
    result = generalisation([point("teacher", 0.5, 0.6), point("student", train, test, noise=noise)])
    assert verdicts(result)["student"] == [verdict]
    assert comes_back(result)


def test_gaps_are_paired_by_query_and_their_intervals_are_those_of_the_evaluation() -> None:
    draw = np.random.default_rng(0)
    teacher, student = draw.random((2, QUERIES))
    ids = [f"n{number}" for number in range(QUERIES)]
    points = [
        TrainTest("teacher", 8, qualities(0.5, "t"), dict(zip(ids, teacher, strict=True))),
        TrainTest("student", 8, qualities(0.5, "t"), dict(zip(reversed(ids), student[::-1], strict=True))),
    ]
    gap = generalisation(points).models[1].sizes[0].on_test
    differences = (teacher - student)[[ids.index(key) for key in sorted(ids)]]
    assert gap is not None
    assert gap.mean == pytest.approx(differences.mean())
    assert (gap.low, gap.high) == pytest.approx(bootstrap_interval(differences))
    assert gap.error == pytest.approx(differences.std(ddof=1) / QUERIES**0.5)


def test_a_small_gap_that_no_query_contradicts_is_one_and_a_large_noisy_one_is_none() -> None:
    """It is the noise over queries that decides, not a share of the quality."""
    steady = generalisation([point("teacher", 0.9, 0.9), point("student", 0.9, 0.88)])
    noisy = generalisation([point("teacher", 0.9, 0.9), point("student", 0.9, 0.8, noise=(0.0, 0.8))])
    assert verdicts(steady)["student"] == ["generalisation"]
    assert verdicts(noisy)["student"] == ["no gap"]


def test_seeds_are_averaged_before_queries_are_compared() -> None:
    students = [point("student", 0.5, 0.6, seed=seed, noise=(n, n)) for seed, n in enumerate((0.3, -0.3))]
    (_, student) = generalisation([point("teacher", 0.5, 0.62), *students]).models
    assert student.sizes[0].on_test is not None
    assert student.sizes[0].on_test.error == pytest.approx(0)
    assert student.sizes[0].verdict == "generalisation"


def test_few_queries_decide_nothing() -> None:
    few = [
        TrainTest(name, 8, qualities(0.5, "t", count=4), qualities(test, "n"))
        for name, test in (("teacher", 0.6), ("student", 0.5))
    ]
    result = generalisation(few)
    assert verdicts(result)["student"] == ["undecided"]
    assert "on 4 training queries: undecided; use more evaluation.train_queries" in shown(
        generalisation_section(result)
    )


def test_the_section_states_the_rule_and_both_gaps_with_their_intervals() -> None:
    noise = (0.3, 0.1)
    result = generalisation([point("teacher", 0.5, 0.6, 1), point("mse", 0.48, 0.56, 1, noise=noise)], "ndcg@10")
    text = shown(generalisation_section(result))
    assert (
        "mse is worse than teacher on new queries; on the 100 of training there may be no gap or one as large" in text
    )
    assert "undecided; use more evaluation.train_queries (gap in nDCG@10 +0.020 [" in text
    assert "the 95% interval of their difference, paired by query, is above 0" in text
    assert "100 training queries, 100 test queries. Gaps are teacher minus the model" in text
    (table,) = (block for block in generalisation_section(result).blocks if isinstance(block, Table))
    assert [column.title for column in table.columns][-3:] == ["Gap on train", "Gap on test", "What is lacking"]
    assert str(table.rows[1].cells[-2]).startswith("+0.040 [+0.0")


def test_models_of_one_size_are_judged_without_a_picture() -> None:
    result = generalisation([point("teacher", 0.5, 0.4), point("student", 0.5, 0.3)], "ndcg@10", setting="")
    section = generalisation_section(result)
    text = shown(section)
    assert "not capacity (gap in nDCG@10 +0.000 [+0.000, +0.000] on train, +0.100" in text and "grows" not in text
    assert not any(isinstance(block, PlotFigure) for block in section.blocks)


def test_the_report_says_if_a_student_beats_the_teacher_on_training_queries() -> None:
    result = generalisation([point("teacher", 0.5, 0.6), point("student", 0.7, 0.4)], setting="")
    text = shown(generalisation_section(result))
    assert "student is better than teacher on training queries and is worse on new ones: it lacks gener" in text


def test_means_and_spread_are_over_seeds() -> None:
    points = [point("m", 0.5, 0.4), point("m", 0.7, 0.3, seed=1), point("m", 0.2, 0.1, size=4)]
    (model,) = generalisation(points).models
    small, large = model.sizes
    assert (small.size, large.size) == (4, 8)
    assert large.train.mean == pytest.approx(0.6)
    assert large.test.mean == pytest.approx(0.35)
    assert large.test.std == pytest.approx(((0.05**2) * 2) ** 0.5)
    assert small.test.std is None


def test_a_reference_of_one_size_is_compared_with_all() -> None:
    points = [point("DE", 0.3, 0.25, 4), point("DE", 0.5, 0.3, 8), point("CA", 0.5, 0.36, 8)]
    result = generalisation(points, reference="CA")
    assert [model.name for model in result.models] == ["CA", "DE"]
    assert verdicts(result)["DE"] == ["capacity", "generalisation"]
    assert "at size 8; capacity at 4)" in shown(generalisation_section(result))


def test_a_reference_of_one_size_is_drawn_across_all_sizes_and_named() -> None:
    points = [point("CA", 0.5, 0.36, 8), point("DE", 0.3, 0.25, 4), point("DE", 0.5, 0.3, 8)]
    (figure,) = (b for b in generalisation_section(generalisation(points)).blocks if isinstance(b, PlotFigure))
    svg = figure.plot.svg(800, 400)
    levels = re.findall(
        r'<g class="level"><title>([^\n]*)\n[^<]*</title><line x1="(.*?)" y1="(.*?)" x2="(.*?)" y2', svg
    )
    assert [name for name, *_ in levels] == ["CA, train", "CA, test"]
    assert all(float(right) - float(left) > 700 for _, left, _, right in levels)
    assert float(levels[0][2]) < float(levels[1][2])  # 0.5 stands above 0.36
    assert re.findall(r'class="label"[^>]*>([^<]*)<', svg) == ["CA, train", "CA, test"]
    assert re.findall(r'class="legend"[^>]*>([^<]*)<', svg) == ["DE, train", "DE, test"]


def test_train_and_test_of_a_model_share_a_colour_and_differ_in_dashes() -> None:
    points = [point(name, 0.5, 0.4, size) for name in ("CA", "DE") for size in (4, 8)]
    html = "".join(block.html() for block in generalisation_section(generalisation(points)).blocks)
    classes = re.findall(r'<polyline points="[^"]*" class="line ([^"]*)"', html)[:4]
    assert classes == ["series-0 dash-1", "series-0 dash-0", "series-1 dash-1", "series-1 dash-0"]


def test_a_single_model_has_no_verdict() -> None:
    assert "m reaches 0.500 on train and 0.400 on test at size 8; without another model" in shown(
        generalisation_section(generalisation([point("m", 0.5, 0.4)]))
    )


ONE = {"q": 0.4}


@pytest.mark.parametrize(
    ("given", "options", "message"),
    [
        ([], {}, "there are no points; give"),
        ([("m", 8, {"q": float("nan")}, ONE, 0)], {}, "m, size 8, seed 0: the quality is nan; measure"),
        ([("m", 8, {}, ONE, 0)], {}, "m, size 8, seed 0: there is no training query"),
        ([("m", 8, ONE, ONE, 0), ("m", 8, ONE, ONE, 0)], {}, "m, size 8, seed 0: given twice"),
        ([("teacher", 8, ONE, ONE, 0)], {"reference": "techer"}, "did you mean 'teacher'"),
        ([("teacher", 8, ONE, ONE, 0), ("m", 8, {"p": 0.4}, ONE, 0)], {}, "measured on different queries"),
    ],
)
def test_points_that_cannot_be_used_are_refused(given: list, options: dict, message: str) -> None:
    with pytest.raises(LimbeckError, match=re.escape(message)):
        generalisation(given, **options)
