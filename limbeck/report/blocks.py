"""The parts of a section of a report. Every block renders its own HTML and escapes all text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Literal, Protocol

SHORT = 60  # characters of a value that fits into a column

Cell = str | float | int | None


class Block(Protocol):
    """Any part of a section."""

    def html(self) -> str: ...


class Plot(Protocol):
    """A drawing of any size (plots.py)."""

    def svg(self, width: float, height: float) -> str: ...


@dataclass(frozen=True)
class Text:
    """A paragraph; `lead` sets it in large type, for the main result."""

    content: str
    lead: bool = False

    def html(self) -> str:
        return f"<p{' class=lead' if self.lead else ''}>{escape(self.content)}</p>"


@dataclass(frozen=True)
class KeyValue:
    """Names and their meanings; in columns if all are short."""

    items: Sequence[tuple[str, str]]

    def html(self) -> str:
        rows = "".join(f"<div><dt>{escape(key)}</dt><dd>{escape(value)}</dd></div>" for key, value in self.items)
        long = any(len(value) > SHORT for _, value in self.items)
        return f'<dl class="facts{" sentences" if long else ""}">{rows}</dl>'


@dataclass(frozen=True)
class Figures:
    """A few large numbers: (value, label, detail)."""

    items: Sequence[tuple[str, str, str]]

    def html(self) -> str:
        tiles = "".join(
            f'<div class="tile"><b>{escape(value)}</b><span>{escape(label)}</span><small>{escape(detail)}</small></div>'
            for value, label, detail in self.items
        )
        return f'<div class="tiles">{tiles}</div>'


@dataclass(frozen=True)
class Column:
    """A table column: how to write its numbers (a format or a function), and which end is best, if any."""

    title: str
    spec: str | Callable[[float], str] = ""
    best: Literal["high", "low"] | None = None
    help: str = ""
    suffix: str = ""

    def show(self, value: Cell) -> str:
        if value is None or isinstance(value, str):
            return value or "–"
        shown = self.spec(value) if callable(self.spec) else format(value, self.spec)
        return shown.replace("-", "−") + self.suffix


@dataclass(frozen=True)
class TableRow:
    """A table row; `kind` marks it (teacher, baseline, student). Only rows that compete can have the best value."""

    cells: Sequence[Cell]
    kind: str = ""
    competes: bool = True


@dataclass(frozen=True)
class Table:
    """A table that the reader can sort by any column. The first column has the name of the row."""

    columns: Sequence[Column]
    rows: Sequence[TableRow]
    caption: str = ""

    def html(self) -> str:
        heads = "".join(self._head(index, column) for index, column in enumerate(self.columns))
        body = "".join(f"<tr>{self._cells(row)}</tr>" for row in self.rows)
        table = f"<table><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table>"
        caption = f"<figcaption>{escape(self.caption)}</figcaption>" if self.caption else ""
        # A scrolling region must be reachable by keyboard.
        scrolling = f'<div class="scroll" tabindex="0" role="region" aria-label="table">{table}</div>'
        return f'<figure class="table">{scrolling}{caption}</figure>'

    def _head(self, index: int, column: Column) -> str:
        css = "" if self._is_text(index) else ' class="number"'
        hint = f' title="{escape(column.help)}"' if column.help else ""
        button = f'<button type="button" data-column="{index}">{escape(column.title)}</button>'
        return f'<th scope="col"{css}{hint}>{button}</th>'

    def _is_text(self, index: int) -> bool:
        return any(isinstance(row.cells[index], str) for row in self.rows)

    def _cells(self, row: TableRow) -> str:
        parts = []
        for index, (column, value) in enumerate(zip(self.columns, row.cells, strict=True)):
            shown = escape(column.show(value))
            if index == 0:
                mark = f'<i class="mark kind-{escape(row.kind)}" title="{escape(row.kind)}"></i>' if row.kind else ""
                parts.append(f'<th scope="row" data-value="{shown}">{mark}{shown}</th>')
                continue
            css = [] if self._is_text(index) else ["number"]
            css += ["best"] if row.competes and value is not None and value == self._best(index) else []
            raw = escape(str(value)) if value is not None else ""
            parts.append(f'<td class="{" ".join(css)}" data-value="{raw}">{shown}</td>')
        return "".join(parts)

    def _best(self, index: int) -> Cell:
        """The best value of a column among the rows that compete, unless all are equal."""
        best = self.columns[index].best
        cells = [row.cells[index] for row in self.rows if row.competes]
        numbers = [cell for cell in cells if isinstance(cell, int | float)]
        if best is None or len(set(numbers)) < 2:
            return None
        return max(numbers) if best == "high" else min(numbers)


@dataclass(frozen=True)
class Code:
    """Preformatted text in a fixed-width font."""

    content: str

    def html(self) -> str:
        return f'<pre tabindex="0"><code>{escape(self.content)}</code></pre>'


@dataclass(frozen=True)
class PlotFigure:
    """A plot with its caption, drawn twice: for wide pages and paper, and for narrow pages."""

    plot: Plot
    caption: str = ""
    height: float = 400.0

    def html(self) -> str:
        wide = f'<div class="wide">{self.plot.svg(960, self.height)}</div>'
        narrow = f'<div class="narrow">{self.plot.svg(370, self.height * 0.85)}</div>'
        caption = f"<figcaption>{escape(self.caption)}</figcaption>" if self.caption else ""
        return f"<figure>{wide}{narrow}{caption}</figure>"


@dataclass(frozen=True)
class PlotGrid:
    """Small plots next to each other, each under its title."""

    plots: Sequence[tuple[str, Plot]]
    caption: str = ""
    height: float = 200.0

    def html(self) -> str:
        cells = "".join(
            f"<div><h4>{escape(title)}</h4>{plot.svg(310, self.height)}</div>" for title, plot in self.plots
        )
        caption = f"<figcaption>{escape(self.caption)}</figcaption>" if self.caption else ""
        return f'<figure><div class="small-plots">{cells}</div>{caption}</figure>'


@dataclass(frozen=True)
class Item:
    """An entry of a list in SideBySide: a name, a number, a note such as its other rank, and its text."""

    name: str
    value: str = ""
    note: str = ""
    text: str = ""
    highlighted: bool = False


@dataclass(frozen=True)
class SideBySide:
    """Ordered lists in columns, such as the results of two models for one query."""

    title: str
    lists: Sequence[tuple[str, Sequence[Item]]]

    def html(self) -> str:
        columns = "".join(
            f"<div><h4>{escape(name)}</h4><ol>{''.join(self._item(item) for item in items)}</ol></div>"
            for name, items in self.lists
        )
        return f'<article class="compare"><h3>{escape(self.title)}</h3><div class="columns">{columns}</div></article>'

    def _item(self, item: Item) -> str:
        note = f'<span class="note">{escape(item.note)}</span>' if item.note else ""
        value = f'<span class="value">{escape(item.value)}</span>' if item.value else ""
        css = ' class="highlighted"' if item.highlighted else ""
        head = f'<div class="head"><code>{escape(item.name)}</code>{note}{value}</div>'
        return f"<li{css}>{head}<p>{escape(item.text)}</p></li>"


@dataclass(frozen=True)
class Marked:
    """A line of text with marked spans: [start, end) of each, in order and without overlap."""

    content: str
    spans: Sequence[tuple[int, int]] = ()

    def html(self) -> str:
        parts, at = [], 0
        for start, end in self.spans:
            if not at <= start <= end <= len(self.content):
                raise ValueError(
                    f"stretch {start} to {end} of {len(self.content)} characters overlaps or is out of range"
                )
            parts += [escape(self.content[at:start]), f"<mark>{escape(self.content[start:end])}</mark>"]
            at = end
        return "".join([*parts, escape(self.content[at:])])


@dataclass(frozen=True)
class Passage:
    """A text under its heading, with a few notes; `good` colours the first note."""

    heading: Marked
    name: str
    text: Marked
    notes: Sequence[str] = ()
    good: bool = False

    def html(self) -> str:
        notes = "".join(f'<span class="note">{escape(note)}</span>' for note in self.notes)
        css = ' class="head highlighted"' if self.good else ' class="head"'
        head = f"<div{css}><code>{escape(self.name)}</code>{notes}</div>"
        return f'<article class="passage"><h3>{self.heading.html()}</h3>{head}<p>{self.text.html()}</p></article>'


@dataclass(frozen=True)
class Section:
    """A part of a report with a title: an explanation, then the blocks."""

    title: str
    blocks: Sequence[Block]
    explanation: str = ""
