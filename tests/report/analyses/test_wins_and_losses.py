import re

import numpy as np
import pytest

from limbeck.errors import LimbeckError
from limbeck.evaluation.ranking_result import RankingResult
from limbeck.evaluation.significance import compare_rankings
from limbeck.report.analyses import wins_and_losses, wins_and_losses_section
from limbeck.report.analyses.wins_and_losses import MOST_BARS
from limbeck.report.blocks import PlotFigure
from tests.report.analyses.helpers import comes_back, ranking_data, shown

IDS = tuple(f"q{number}" for number in range(6))
DATA = ranking_data({key: f"text of <{key}>" for key in IDS}, {"d": "document"})


def result_of(values: list[float], ids: tuple[str, ...] = IDS) -> RankingResult:
    return RankingResult(ids, {"mrr@10": np.array(values)}, 0, 0)


A = result_of([1.0, 0.5, 0.5, 0.0, 1.0, 0.2])
B = result_of([0.0, 0.5, 1.0, 1.0, 0.75, 0.2])


def test_differences_are_counted_sorted_and_named() -> None:
    found = wins_and_losses(A, B, "MRR@10", DATA, count=2)
    assert (found.won, found.tied, found.lost) == (2, 2, 2)
    assert found.differences == (1.0, 0.25, 0.0, 0.0, -0.5, -1.0)
    assert [(each.query_id, each.difference) for each in found.gains] == [("q0", 1.0), ("q4", 0.25)]
    assert [(each.query_id, each.difference) for each in found.losses] == [("q3", -1.0), ("q2", -0.5)]
    assert found.gains[0].query == "text of <q0>"
    assert found.means == pytest.approx((3.2 / 6, 3.45 / 6))
    assert found.measure == "mrr@10"
    assert comes_back(found)


def test_the_interval_and_the_test_are_those_of_the_evaluation() -> None:
    found, test = wins_and_losses(A, B, "mrr@10", DATA), compare_rankings(A, B, "mrr@10")
    assert (found.low, found.high, found.p) == (test.low, test.high, test.p_values["randomisation"])


def test_only_queries_that_were_won_or_lost_are_listed() -> None:
    found = wins_and_losses(A, A, "mrr@10", DATA)
    assert found.gains == found.losses == ()
    assert "wins 0 queries, ties 6 and loses 0" in shown(wins_and_losses_section(found))


def test_the_section_has_a_bar_for_each_query_and_their_texts() -> None:
    section = wins_and_losses_section(wins_and_losses(A, B, "mrr@10", DATA, names=("new", "old"), count=1))
    text = shown(section)
    assert "new wins 2 queries, ties 2 and loses 2. Mean difference −0.042" in text
    assert "That may be luck." in text
    assert "text of <q0>" in text
    assert "text of <q4>" not in text
    html = "".join(block.html() for block in section.blocks)
    assert len(re.findall('class="bar ', html)) == 2 * 6  # drawn for wide and for narrow pages


def test_many_queries_share_bars() -> None:
    ids = tuple(f"q{number:04}" for number in range(1000))
    data = ranking_data({key: key for key in ids}, {"d": "document"})
    draw = np.random.default_rng(0)
    first, second = (result_of(draw.random(1000).tolist(), ids) for _ in range(2))
    section = wins_and_losses_section(wins_and_losses(first, second, "mrr@10", data))
    html = "".join(block.html() for block in section.blocks)
    assert len(re.findall('class="bar ', html)) <= 2 * (MOST_BARS + 2)
    assert "Neighbouring queries share a bar" in shown(section)


def test_wins_are_drawn_as_wide_as_they_are_many() -> None:
    ids = tuple(f"q{number:04}" for number in range(300))
    data = ranking_data({key: key for key in ids}, {"d": "document"})
    first, second = result_of([0.5] * 54 + [0.0] * 246, ids), result_of([0.0] * 266 + [0.5] * 34, ids)
    section = wins_and_losses_section(wins_and_losses(first, second, "mrr@10", data))
    (figure,) = (block for block in section.blocks if isinstance(block, PlotFigure))
    drawn = re.findall(
        r'class="bar (\w+)"><title>[^<]*</title><rect [^>]*class="hit"/><rect x="[\d.]+" y="[\d.]+" '
        r'width="([\d.]+)" height="([\d.]+)"',
        figure.plot.svg(1000, 280),
    )
    won, lost = (sum(float(w) for css, w, h in drawn if css == kind and float(h) > 0) for kind in ("rise", "fall"))
    assert won / lost == pytest.approx(54 / 34, rel=0.01)


@pytest.mark.parametrize(
    ("second", "measure", "message"),
    [
        (result_of([1.0], ("q0",)), "mrr@10", "judged on different queries"),
        (B, "ndcg@10", "ndcg@10 was not computed for both"),
        (B, "mmr@10", "unknown measure"),
        (result_of([float("nan")] * 6), "mrr@10", "not a finite number"),
    ],
)
def test_results_that_cannot_be_compared_are_refused(second: RankingResult, measure: str, message: str) -> None:
    with pytest.raises(LimbeckError, match=message):
        wins_and_losses(A, second, measure, DATA)


def test_a_query_without_a_text_is_named() -> None:
    empty = ranking_data({"other": "text"}, {"d": "document"})
    with pytest.raises(LimbeckError, match="unknown id 'q0'"):
        wins_and_losses(A, B, "mrr@10", empty)
