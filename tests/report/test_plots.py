import re
from importlib.resources import files
from xml.etree import ElementTree

import numpy as np
import pytest

from limbeck.report.plots import (
    Bars,
    BinnedHistogram,
    Histogram,
    Lines,
    Point,
    Scatter,
    Series,
    bin_shares,
    series_class,
)


def by_class(svg: str, tag: str, css: str) -> list[ElementTree.Element]:
    root = ElementTree.fromstring(svg)
    return [node for node in root.iter(tag) if css in (node.get("class") or "").split()]


def texts(svg: str, css: str) -> list[str]:
    return [node.text or "" for node in by_class(svg, "text", css)]


def test_scatter_points_on_a_log_axis_are_placed_by_their_logarithms() -> None:
    points = [Point(1, 0.5, "a"), Point(10, 0.6, "b"), Point(100, 0.7, "c")]
    svg = Scatter(points, "ms", "nDCG@10", log_x=True).svg(800, 400)
    circles = [node.find("circle") for node in by_class(svg, "g", "kind-student")]
    xs = [float(circle.get("cx", "nan")) for circle in circles if circle is not None]
    ys = [float(circle.get("cy", "nan")) for circle in circles if circle is not None]
    assert xs[1] - xs[0] == pytest.approx(xs[2] - xs[1], abs=0.2)
    assert ys[0] - ys[1] == pytest.approx(ys[1] - ys[2], abs=0.2)
    assert xs[0] < xs[2]
    assert ys[2] < ys[0]


def test_every_point_has_its_label_a_tooltip_and_a_shape_of_its_kind() -> None:
    points = [
        Point(400, 0.8, "teacher", "teacher", "12 layers"),
        Point(2, 0.7, "fast"),
        Point(1, 0.5, "BM25", "baseline"),
    ]
    svg = Scatter(points, "ms", "nDCG@10", log_x=True).svg(800, 400)
    assert sorted(texts(svg, "label")) == ["BM25", "fast", "teacher"]
    (teacher,) = by_class(svg, "g", "kind-teacher")
    (baseline,) = by_class(svg, "g", "kind-baseline")
    title = teacher.find("title")
    assert title is not None
    assert title.text == "teacher\nnDCG@10 0.8\nms 400\n12 layers"
    assert teacher.find("rect") is not None
    assert baseline.find("polygon") is not None


def test_a_drawing_is_described_to_those_who_cannot_see_it() -> None:
    root = ElementTree.fromstring(Scatter([Point(2, 0.7, "a & <b>")], "ms", "MRR@10").svg(400, 300))
    assert root.get("role") == "img"
    assert root.get("aria-label") == "MRR@10 against ms: a & <b> at 2, 0.7"


def test_lines_have_a_legend_when_there_are_several_and_none_for_one() -> None:
    two = Lines([Series("a", [(0, 1), (1, 2)]), Series("b", [(0, 2), (1, 1)])], "step", "loss").svg(400, 200)
    one = Lines([Series("a", [(0, 1), (1, 2)])], "step", "loss").svg(400, 200)
    assert texts(two, "legend") == ["a", "b"]
    assert texts(one, "legend") == []
    assert len(by_class(two, "polyline", "line")) == 2


def test_a_rising_line_rises_and_its_points_can_be_read() -> None:
    svg = Lines([Series("dev", [(100, 0.5), (200, 0.625)])], "step", "nDCG@10").svg(400, 200)
    (line,) = by_class(svg, "polyline", "line")
    (x0, y0), (x1, y1) = (map(float, pair.split(",")) for pair in (line.get("points") or "").split())
    assert x1 > x0
    assert y1 < y0
    titles = [node.text for node in ElementTree.fromstring(svg).iter("title")]
    assert titles == ["dev\nstep 100\nnDCG@10 0.5", "dev\nstep 200\nnDCG@10 0.625"]


def test_a_single_measurement_is_a_dot() -> None:
    svg = Lines([Series("dev", [(100, 0.5)])], "step", "nDCG@10").svg(400, 200)
    assert by_class(svg, "polyline", "line") == []
    assert len(by_class(svg, "circle", "dot")) == 1


def test_thirty_two_series_have_different_styles() -> None:
    assert len({series_class(index) for index in range(32)}) == 32


def test_histogram_shares_agree_with_numpy() -> None:
    sample = np.random.default_rng(0).normal(size=500)
    counts, _ = np.histogram(sample, bins=12, range=(sample.min(), sample.max()))
    shares = bin_shares(sample.tolist(), sample.min(), sample.max(), 12)
    assert shares == pytest.approx((counts / 500).tolist())


def test_histogram_areas_are_as_high_as_their_largest_bins() -> None:
    svg = Histogram({"even": [0.0, 1.0, 2.0, 3.0], "peak": [0.0, 0.1, 0.2, 3.0]}, "score", bins=4).svg(400, 300)
    tops = []
    for area in by_class(svg, "polygon", "area"):
        ys = [float(corner.split(",")[1]) for corner in (area.get("points") or "").split()]
        tops.append(max(ys) - min(ys))
    assert tops[1] == pytest.approx(3 * tops[0], rel=0.01)  # a share of 3/4 beside one of 1/4


def test_equal_values_still_make_a_histogram() -> None:
    assert by_class(Histogram({"same": [2.0, 2.0]}, "score").svg(400, 300), "polygon", "area")


def test_a_binned_histogram_draws_what_counting_the_sample_draws() -> None:
    sample = [0.0, 0.1, 0.2, 3.0]
    counted = BinnedHistogram({"s": bin_shares(sample, 0.0, 3.0, 4)}, 0.0, 3.0, "score")
    assert counted.svg(400, 300) == Histogram({"s": sample}, "score", bins=4).svg(400, 300)


def test_error_bars_reach_from_their_low_to_their_high_end_inside_the_frame() -> None:
    series = Series("a", [(1, 0.5), (2, 0.6)], [(0.4, 0.6), (0.3, 0.9)])
    svg = Lines([series], "K", "MRR@10").svg(400, 300)
    strokes = [
        [float(node.get(key, "nan")) for key in ("x1", "y1", "x2", "y2")] for node in by_class(svg, "line", "error")
    ]
    upright = [(y1 - y2) for x1, y1, x2, y2 in strokes if x1 == x2]
    assert upright[1] == pytest.approx(3 * upright[0], abs=0.3)
    assert all(0 < y < 300 for _, y1, _, y2 in strokes for y in (y1, y2))


def test_an_error_bar_too_few_is_refused() -> None:
    with pytest.raises(ValueError, match="zip"):
        Lines([Series("a", [(1, 0.5), (2, 0.6)], [(0.4, 0.6)])], "K", "MRR@10").svg(400, 300)


def test_lines_on_log_axes_are_placed_by_their_logarithms() -> None:
    svg = Lines([Series("a", [(1, 1), (10, 0.1), (100, 0.01)])], "rank", "size", log_x=True, log_y=True).svg(400, 300)
    (drawn,) = by_class(svg, "polyline", "line")
    places = [tuple(map(float, pair.split(","))) for pair in (drawn.get("points") or "").split()]
    for axis in (0, 1):
        assert places[1][axis] - places[0][axis] == pytest.approx(places[2][axis] - places[1][axis], abs=0.2)


def test_measured_values_can_be_the_labels_of_the_axis() -> None:
    series = Series("a", [(2, 0.3), (10, 0.4), (100, 0.5)])
    svg = Lines([series], "K", "MRR@10", log_x=True, label_points=True).svg(600, 300)
    assert {"2", "10", "100"} <= set(texts(svg, "tick"))
    assert "50" not in texts(svg, "tick")


def test_a_style_replaces_the_class_of_a_series() -> None:
    svg = Lines([Series("a", [(1, 1), (2, 2)], style="series-3 dash-1")], "x", "y").svg(400, 300)
    assert len(by_class(svg, "polyline", "series-3")) == 1


def test_bars_rise_and_fall_from_zero_in_proportion() -> None:
    svg = Bars([1.0, 0.5, -0.5], ["one", "half", "minus half"], "queries", "difference").svg(400, 300)
    heights = {}
    for group in (*by_class(svg, "g", "rise"), *by_class(svg, "g", "fall")):
        title, bar = group.find("title"), group.findall("rect")[-1]
        assert title is not None
        heights[title.text] = (float(bar.get("y", "nan")), float(bar.get("height", "nan")))
    assert heights["one"][1] == pytest.approx(2 * heights["half"][1], abs=0.3)
    assert heights["half"][1] == pytest.approx(heights["minus half"][1], abs=0.3)
    zero = heights["one"][0] + heights["one"][1]
    assert heights["minus half"][0] == pytest.approx(zero, abs=0.2)
    assert ElementTree.fromstring(svg).get("aria-label") == "difference: 2 queries above zero, 1 below, of 3"


def test_bars_that_are_all_zero_can_be_drawn() -> None:
    assert len(by_class(Bars([0.0, 0.0], ["a", "b"], "queries", "difference").svg(400, 300), "g", "bar")) == 2


def test_many_histograms_are_outlines_and_a_few_are_filled() -> None:
    shares = {f"model {number}": [0.5, 0.5] for number in range(8)}
    assert len(by_class(BinnedHistogram(shares, 0.0, 1.0, "margin").svg(400, 300), "polygon", "outline")) == 8
    few = dict(list(shares.items())[:2])
    assert len(by_class(BinnedHistogram(few, 0.0, 1.0, "margin").svg(400, 300), "polygon", "area")) == 2


def test_a_legend_has_the_dashes_of_what_it_names_in_small_plots_too() -> None:
    svg = BinnedHistogram({"positives": [1.0], "negatives": [1.0]}, 0.0, 1.0, "score").svg(300, 200)
    areas = [node.get("class", "").split()[1:] for node in by_class(svg, "polygon", "area")]
    assert [node.get("class", "").split()[1:] for node in by_class(svg, "line", "line")] == areas
    style = (files("limbeck.report") / "page.css").read_text(encoding="utf-8")
    assert not re.search(r"\.small-plots[^{]*\{[^}]*stroke-dasharray", style)
