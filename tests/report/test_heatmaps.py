"""Maps of numbers with words on both axes: every value is where its words are, and as dark as it is large."""

from xml.etree import ElementTree

import pytest

from limbeck.report.heatmaps import MOST, SMALLEST_CELL, Heatmap, HeatmapGrid
from tests.report.test_blocks import Reader

ROWS, COLUMNS = ["a", "man", "sleeps"], ["he", "rests"]
VALUES = [[0.5, 0.5], [0.75, 0.25], [0.0, 1.0]]


def cells(svg: str) -> list[ElementTree.Element]:
    """The cells of the map, those of the key left out."""
    root = ElementTree.fromstring(svg)
    return [node for node in root.iter("rect") if node.get("class") == "heat" and node.find("title") is not None]


def words(svg: str) -> list[str]:
    (group,) = [node for node in ElementTree.fromstring(svg).iter("g") if node.get("class") == "heat-words"]
    return [node.text or "" for node in group.iter("text")]


def test_each_value_is_at_its_row_and_column_and_as_dark_as_it_is_large() -> None:
    svg = Heatmap(ROWS, COLUMNS, VALUES).svg(600)
    found = cells(svg)
    assert [node.findtext("title") for node in found] == [
        f"{row} → {column}: {VALUES[down][across]:.3f}"
        for down, row in enumerate(ROWS)
        for across, column in enumerate(COLUMNS)
    ]
    assert [float(node.get("fill-opacity", "nan")) for node in found] == [value for row in VALUES for value in row]
    xs, ys = ([float(node.get(axis, "nan")) for node in found] for axis in "xy")
    assert xs[0] == xs[2] == xs[4] < xs[1] and ys[0] == ys[1] < ys[2] < ys[4]
    assert words(svg) == [*COLUMNS, *ROWS]


def test_maps_with_the_same_top_can_be_compared() -> None:
    pale = cells(Heatmap(ROWS, COLUMNS, VALUES, high=2.0).svg(600))
    assert [float(node.get("fill-opacity", "nan")) for node in pale[-2:]] == [0.0, 0.5]
    svg = Heatmap(ROWS, COLUMNS, VALUES, high=2.0).svg(600)
    assert [node.text for node in ElementTree.fromstring(svg).iter("text") if node.get("class") == "tick"] == ["0", "2"]


def test_a_map_of_nothing_but_zeros_is_drawn() -> None:
    found = cells(Heatmap(["a"], ["b"], [[0.0]]).svg(300))
    assert [node.get("fill-opacity") for node in found] == ["0.000"]


@pytest.mark.parametrize("count", [1, 12, MOST])
def test_a_map_fits_the_width_of_a_page(count: int) -> None:
    names = [f"{'long' * (number % 5)}{number}" for number in range(count)]
    svg = Heatmap(names, names, [[0.1] * count] * count).svg(960)
    root = ElementTree.fromstring(svg)
    width, height = (float(number) for number in root.get("viewBox", "").split()[2:])
    found = cells(svg)
    assert len(found) == count * count
    assert max(float(node.get("x", "nan")) + float(node.get("width", "nan")) for node in found) <= width <= 960
    assert max(float(node.get("y", "nan")) + float(node.get("height", "nan")) for node in found) <= height
    assert float(found[0].get("width", "nan")) >= SMALLEST_CELL - 1


def test_what_does_not_fit_on_a_page_is_left_out_with_a_note() -> None:
    names = [f"w{number}" for number in range(MOST + 7)]
    svg = Heatmap(names, ["x"], [[0.5]] * len(names), row_title="text 1", column_title="text 2").svg(960)
    assert len(cells(svg)) == MOST and f"w{MOST}" not in words(svg)
    assert "text 1 (and 7 more) → text 2" in svg


def test_words_are_text_and_never_markup() -> None:
    svg = Heatmap(["<script>"], ["a & b"], [[0.5]]).svg(400)
    assert words(svg) == ["a & b", "<script>"]
    root = ElementTree.fromstring(svg)
    assert root.get("aria-label") == "Map of 1 by 1 words; the largest value is 0.500, from <script> to a & b"


def test_values_of_another_shape_are_refused() -> None:
    for rows, columns, values in (
        (ROWS, COLUMNS, VALUES[:2]),
        (ROWS, ["he"], VALUES),
        ([], COLUMNS, []),
        (ROWS, [], [[]] * 3),
    ):
        with pytest.raises(ValueError, match="a map"):
            Heatmap(rows, columns, values)


def test_small_maps_share_a_row_and_large_ones_have_one_each() -> None:
    def widths(count: int, maps: int = 3) -> set[float]:
        names = [f"w{number}" for number in range(count)]
        drawn = Heatmap(names, names, [[0.1] * count] * count)
        page = Reader(HeatmapGrid([("teacher", drawn), ("<b>", drawn), ("c", drawn)][:maps], "title", "caption").html())
        assert "teacher" in page.text and "<b>" in page.text and "caption" in page.text
        return {float(value["width"]) for tag, value in page.tags if tag == "svg"}

    assert max(widths(8)) <= 320 < max(widths(20)) <= 480 < max(widths(MOST)) <= 960
    assert max(widths(12, maps=3)) < max(widths(12, maps=2))
