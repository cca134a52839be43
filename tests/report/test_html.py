import base64
import hashlib
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from limbeck.report.blocks import Column, PlotFigure, Section, Table, TableRow, Text
from limbeck.report.html import Report
from limbeck.report.plots import Point, Scatter

VOID = {"meta", "br", "hr", "img", "input", "link"}


def sample() -> Report:
    plot = Scatter([Point(1, 0.5, "a"), Point(10, 0.6, "b")], "ms", "nDCG@10", log_x=True)
    sections = [
        Section("Result", [Text("It works.")], "What came out."),
        Section(
            "More & more", [PlotFigure(plot), Table([Column("Model"), Column("n", ".0f")], [TableRow(["a", 1.0])])]
        ),
        Section("Result", [Text("Again.")]),
    ]
    return Report("A <title>", "one & two", sections, "the end")


class Balance(HTMLParser):
    """Every tag closed in order, and all attributes."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.attributes += [(tag, name, value or "") for name, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_tags_are_balanced() -> None:
    assert Balance(sample().render()).open == []


def test_the_page_refers_to_nothing_outside_itself() -> None:
    page = sample().render()
    loads = [value for _, name, value in Balance(page).attributes if name in ("src", "href", "srcset", "xlink:href")]
    assert loads
    assert all(value.startswith("#") for value in loads)
    assert not re.search(r"https?://|url\(|@import|@font-face", page)


def test_only_our_own_script_may_run() -> None:
    page = sample().render()
    (script,) = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]*)"', page)
    assert policy == f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"


def test_sections_have_distinct_anchors_that_the_navigation_names() -> None:
    attributes = Balance(sample().render()).attributes
    sections = [value for tag, name, value in attributes if (tag, name) == ("section", "id")]
    links = [value for tag, name, value in attributes if (tag, name) == ("a", "href")]
    assert sections == ["result", "more-more", "result-2"]
    assert links == [f"#{anchor}" for anchor in sections]


def test_colours_that_are_used_are_defined() -> None:
    page = sample().render()
    assert set(re.findall(r"var\((--[\w-]+)\)", page)) <= set(re.findall(r"(--[\w-]+): light-dark", page))


def test_light_dark_and_paper_are_provided_for() -> None:
    page = sample().render()
    assert "color-scheme: light dark;" in page
    assert '[data-theme="dark"]' in page
    assert "@media print" in page


def test_a_report_is_written_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = sample().write(tmp_path / "report.html")
    before = path.read_text(encoding="utf-8")
    assert before == sample().render()

    def broken(self: Text) -> str:
        raise RuntimeError("half way")

    monkeypatch.setattr(Text, "html", broken)
    with pytest.raises(RuntimeError):
        sample().write(path)
    assert path.read_text(encoding="utf-8") == before
    assert [file.name for file in tmp_path.iterdir()] == ["report.html"]
