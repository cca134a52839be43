from html.parser import HTMLParser

import pytest

from limbeck.report.blocks import (
    Block,
    Code,
    Column,
    Figures,
    Item,
    KeyValue,
    Marked,
    Passage,
    PlotFigure,
    SideBySide,
    Table,
    TableRow,
    Text,
)
from limbeck.report.plots import Bars, Point, Scatter

EVIL = '<script>alert("x")</script>&amp;\'"'


class Reader(HTMLParser):
    """The tags and the text that a browser would see."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.mark.parametrize(
    "block",
    [
        Text(EVIL),
        KeyValue([(EVIL, EVIL)]),
        Figures([(EVIL, EVIL, EVIL)]),
        Code(EVIL),
        Table([Column(EVIL, help=EVIL), Column("n")], [TableRow([EVIL, EVIL], EVIL)], EVIL),
        SideBySide(EVIL, [(EVIL, [Item(EVIL, EVIL, EVIL, EVIL)])]),
        Marked(EVIL),
        Passage(Marked(EVIL), EVIL, Marked(EVIL), [EVIL]),
        PlotFigure(Scatter([Point(1, 1, EVIL, note=EVIL)], EVIL, EVIL), EVIL),
        PlotFigure(Bars([1.0], [EVIL], EVIL, EVIL), EVIL),
    ],
)
def test_every_block_shows_markup_as_text(block: Block) -> None:
    seen = Reader(block.html())
    assert "script" not in {tag for tag, _ in seen.tags}
    assert EVIL in seen.text


def cells(table: Table) -> list[tuple[str, dict[str, str | None]]]:
    return [(tag, attrs) for tag, attrs in Reader(table.html()).tags if tag == "td"]


def test_the_best_value_of_a_column_is_marked_among_those_that_compete() -> None:
    columns = [
        Column("Model"),
        Column("quality", ".2f", "high"),
        Column("ms", ".1f", "low"),
        Column("size", ".0f", "low"),
    ]
    rows = [
        TableRow(["teacher", 0.9, 400.0, 90], "teacher", competes=False),
        TableRow(["a", 0.7, 2.0, 60], "student"),
        TableRow(["b", 0.8, 3.0, 60], "student"),
    ]
    best = ["best" in (attrs["class"] or "") for _, attrs in cells(Table(columns, rows))]
    assert best == [False, False, False, False, True, False, True, False, False]  # equal sizes: no winner


def test_cells_carry_the_exact_value_for_sorting_and_show_the_rounded_one() -> None:
    table = Table(
        [Column("Model"), Column("speed", ",.1f", suffix="×"), Column("gain", "+.2f")],
        [TableRow(["a", 1234.56, -0.014])],
    )
    assert [attrs["data-value"] for _, attrs in cells(table)] == ["1234.56", "-0.014"]
    assert "1,234.6×" in Reader(table.html()).text
    assert "−0.01" in Reader(table.html()).text


def test_an_absent_value_is_a_dash_and_sorts_as_empty() -> None:
    table = Table([Column("Model"), Column("ms", ".1f")], [TableRow(["a", None])])
    assert cells(table)[0][1]["data-value"] == ""
    assert "–" in Reader(table.html()).text


def test_number_columns_are_aligned_and_headings_can_be_pressed() -> None:
    table = Table(
        [Column("Model"), Column("ms", ".1f"), Column("against")],
        [TableRow(["a", 2.0, "b"]), TableRow(["c", None, None])],
    )
    tags = Reader(table.html()).tags
    assert [attrs.get("class") for tag, attrs in tags if tag == "th" and attrs.get("scope") == "col"] == [
        None,
        "number",
        None,
    ]
    assert [attrs["data-column"] for tag, attrs in tags if tag == "button"] == ["0", "1", "2"]


def test_a_row_of_another_length_than_the_columns_is_refused() -> None:
    with pytest.raises(ValueError, match="zip"):
        Table([Column("Model"), Column("ms")], [TableRow(["a", 1.0, 2.0])]).html()


def test_marked_stretches_are_marked_and_everything_is_escaped() -> None:
    assert Marked("a <b> & c", [(2, 5), (8, 9)]).html() == "a <mark>&lt;b&gt;</mark> &amp; <mark>c</mark>"
    assert Marked("plain").html() == "plain"
    for start in range(len(EVIL)):
        seen = Reader(Marked(EVIL, [(start, len(EVIL))]).html())
        assert seen.text == EVIL
        assert [tag for tag, _ in seen.tags] == ["mark"]


@pytest.mark.parametrize("spans", [[(0, 3), (2, 4)], [(3, 2)], [(0, 99)], [(-1, 2)], [(3, 4), (0, 1)]])
def test_stretches_that_overlap_or_lie_outside_are_refused(spans: list[tuple[int, int]]) -> None:
    with pytest.raises(ValueError, match="overlaps or is out of range"):
        Marked("abcde", spans).html()


def test_only_a_passage_that_is_good_is_coloured() -> None:
    good, other = (Passage(Marked("q"), "d", Marked("text"), ["relevant"], good=good).html() for good in (True, False))
    assert "highlighted" in good
    assert "highlighted" not in other


@pytest.mark.parametrize(("value", "columns"), [("x" * 60, True), ("x" * 61, False)])
def test_meanings_that_do_not_fit_into_columns_have_the_whole_width(value, columns):
    assert ("sentences" not in KeyValue([("short", "x"), ("long", value)]).html()) == columns
