import re

import pytest

from limbeck.errors import LimbeckError
from limbeck.report.analyses import SettingPoint, sensitivity, sensitivity_section
from tests.report.analyses.helpers import comes_back, shown

# Table 6 of the paper.
POINTS = [
    SettingPoint(name, size, quality)
    for size, qualities in {2: (0.327, 0.323), 10: (0.333, 0.326), 20: (0.338, 0.349), 100: (0.334, 0.325)}.items()
    for name, quality in zip(("softmax CE", "M3SE"), qualities, strict=True)
]


def test_values_are_sorted_and_the_best_and_the_smallest_good_one_are_named() -> None:
    result = sensitivity(reversed(POINTS), tolerance=0.02)
    lines = {line.name: line for line in result.lines}
    assert [each.value for each in lines["M3SE"].results] == [2, 10, 20, 100]
    assert (lines["softmax CE"].best, lines["softmax CE"].enough) == (20, 10)  # 0.333 is within 2% of 0.338
    assert (lines["M3SE"].best, lines["M3SE"].enough) == (20, 20)
    assert comes_back(result)


def test_seeds_are_averaged_and_give_error_bars() -> None:
    result = sensitivity([("a", 2, 0.1, 0), ("a", 2, 0.3, 1), ("a", 4, 0.5, 0), ("a", 4, 0.7, 1)])
    (line,) = result.lines
    assert line.results[0].quality.mean == pytest.approx(0.2)
    assert line.results[0].quality.std == pytest.approx(0.02**0.5)
    html = "".join(block.html() for block in sensitivity_section(result).blocks)
    assert len(re.findall('class="error ', html)) == 2 * 2 * 3  # wide and narrow, two points, three strokes each


def test_single_seeds_have_no_error_bars_and_the_caption_says_so() -> None:
    section = sensitivity_section(sensitivity(POINTS))
    assert 'class="error ' not in "".join(block.html() for block in section.blocks)
    text = shown(section)
    assert "have no error bar" in text
    assert "M3SE is best with documents per query = 20 (0.349)." in text


def test_lines_may_have_different_values() -> None:
    result = sensitivity([("a", 2, 0.1, 0), ("a", 4, 0.2, 0), ("b", 8, 0.3, 0)], setting="layers", measure="ndcg@10")
    text = shown(sensitivity_section(result))
    assert "Sensitivity: layers" in text
    assert "nDCG@10 against layers" in text


@pytest.mark.parametrize(
    ("points", "message"),
    [
        ([], "there are no points; give name, documents per query, quality and seed"),
        ([("a", 2, 0.1, 0), ("b", 2, 0.2, 0)], "all points have the same documents per query; measure at two"),
        ([("a", 2, float("inf"), 3)], "a, documents per query 2, seed 3: the quality is inf"),
        ([("a", 2, 0.1, 0), ("a", 2, 0.2, 0)], "a, documents per query 2, seed 0: given twice"),
    ],
)
def test_points_that_cannot_be_used_are_refused(points: list, message: str) -> None:
    with pytest.raises(LimbeckError, match=message):
        sensitivity(points)
