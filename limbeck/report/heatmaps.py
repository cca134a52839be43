"""Maps of numbers with words on both axes, such as attention between the tokens of two texts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from limbeck.report.plot_axes import FONT, text, tooltip
from limbeck.report.scales import shortened, text_width, tick_label

MOST = 40  # maximum words on an axis of a page
LARGEST_CELL, SMALLEST_CELL = 26.0, 15.0  # pixels; smaller cells are too narrow for the words
LONGEST_WORD = 92.0  # pixels
SLANT = 0.7072  # a word at 45 degrees is as wide as it is high
SWATCHES = 6  # in the key
PAGE, GAP = 960.0, 26.0  # as in page.css


@dataclass(frozen=True)
class Heatmap:
    """Values [rows, columns] as shades, from 0 to `high` (the largest value by default); the value is the tooltip.

    To compare maps, give them the same `high`. Words beyond the first MOST of an axis are left out.
    """

    rows: Sequence[str]
    columns: Sequence[str]
    values: Sequence[Sequence[float]]
    high: float | None = None
    row_title: str = ""
    column_title: str = ""

    def __post_init__(self) -> None:
        if len(self.values) != len(self.rows) or any(len(row) != len(self.columns) for row in self.values):
            raise ValueError(f"a map of {len(self.rows)} by {len(self.columns)} words has values of another shape")
        if not self.rows or not self.columns:
            raise ValueError("a map needs a word on each axis")

    @property
    def top(self) -> float:
        """The value of the darkest shade."""
        return self.high or max(max(row) for row in self.values) or 1.0

    def cell(self, width: float) -> float:
        """The size of a cell in a drawing of this width."""
        return min(LARGEST_CELL, (width - self._left - self._lean) / min(len(self.columns), MOST))

    @property
    def _left(self) -> float:
        return 10 + max(_wide(word) for word in self.rows[:MOST])

    @property
    def _lean(self) -> float:
        """The width of the last slanted words beyond the cells."""
        reach = [_wide(word) * SLANT - SMALLEST_CELL * at for at, word in enumerate(reversed(self.columns[:MOST]))]
        return max(0.0, *reach)

    def svg(self, width: float, height: float = 0.0) -> str:
        """The drawing; its height depends on the number of rows."""
        cell = max(self.cell(width), 4.0)
        rows, columns = self.rows[:MOST], self.columns[:MOST]
        left, top = self._left, 34 + SLANT * max(_wide(word) for word in columns)
        right, bottom = left + cell * len(columns), top + cell * len(rows)
        size = f"font-size:{min(FONT, max(7.0, cell - 2)):.1f}px"
        parts = [self._title(), f'<rect x="{left:.1f}" y="{top:.1f}" width="{right - left:.1f}" ']
        parts[-1] += f'height="{bottom - top:.1f}" class="heat-back"/>'
        parts.append(f'<g style="{size}" class="heat-words">')
        for number, word in enumerate(columns):
            x, y = left + cell * (number + 0.65), top - 6
            turned = f'transform="rotate(-45 {x:.1f} {y:.1f})"'
            parts.append(f'<text x="{x:.1f}" y="{y:.1f}" {turned}>{escape(_short(word))}</text>')
        for number, word in enumerate(rows):
            y = top + cell * (number + 0.5) + 4
            parts.append(f'<text x="{left - 6:.1f}" y="{y:.1f}" text-anchor="end">{escape(_short(word))}</text>')
        parts.append("</g>")
        for down, row in enumerate(rows):
            for across, column in enumerate(columns):
                place = (left + cell * across, top + cell * down)
                parts.append(_cell(place, cell, self.values[down][across], self.top, f"{row} → {column}"))
        parts.append(self._key(left, bottom + 16))
        whole = max(right + self._lean, left + 150)
        opening = f'<svg viewBox="0 0 {whole:.0f} {bottom + 50:.0f}" width="{whole:.0f}" role="img" '
        return "\n".join([f'{opening}aria-label="{escape(self._description())}">', *parts, "</svg>"])

    def _title(self) -> str:
        """The titles of the axes, and how many words are left out."""
        more = [f"{len(words) - MOST} more" if len(words) > MOST else "" for words in (self.rows, self.columns)]
        names = [
            f"{title} (and {left_out})" if left_out else title
            for title, left_out in zip((self.row_title, self.column_title), more, strict=True)
        ]
        return text(0, 12, " → ".join(name for name in names if name), "axis-title", "start")

    def _key(self, x: float, y: float) -> str:
        """Shades from 0 to the darkest, with both numbers."""
        swatches = [
            f'<rect x="{x + 18 * at:.1f}" y="{y:.1f}" width="18" height="10" class="heat" '
            f'fill-opacity="{at / (SWATCHES - 1):.2f}"/>'
            for at in range(SWATCHES)
        ]
        back = f'<rect x="{x:.1f}" y="{y:.1f}" width="{18 * SWATCHES}" height="10" class="heat-back"/>'
        ends = text(x, y + 26, "0", "tick", "start")
        ends += text(x + 18 * SWATCHES, y + 26, tick_label(float(f"{self.top:.2g}")), "tick", "end")
        return "".join([back, *swatches, ends])

    def _description(self) -> str:
        value, row, column = max(
            (value, self.rows[down], self.columns[across])
            for down, values in enumerate(self.values)
            for across, value in enumerate(values)
        )
        size = f"{len(self.rows)} by {len(self.columns)} words"
        return f"Map of {size}; the largest value is {value:.3f}, from {row} to {column}"


def _cell(place: tuple[float, float], size: float, value: float, top: float, words: str) -> str:
    shade = min(1.0, max(0.0, value / top))
    where = f'x="{place[0]:.1f}" y="{place[1]:.1f}" width="{size - 1:.1f}" height="{size - 1:.1f}"'
    return f'<rect {where} class="heat" fill-opacity="{shade:.3f}">{tooltip(f"{words}: {value:.3f}")}</rect>'


def _short(word: str) -> str:
    return shortened(word, LONGEST_WORD, FONT)


def _wide(word: str) -> float:
    return text_width(_short(word), FONT)


@dataclass(frozen=True)
class HeatmapGrid:
    """Maps with titles, as many per row as leave cells large enough to read."""

    maps: Sequence[tuple[str, Heatmap]]
    title: str = ""
    caption: str = ""

    def html(self) -> str:
        width = self._width()
        cells = "".join(
            f'<div tabindex="0" role="region" aria-label="{escape(title)}" style="width:{width:.0f}px">'
            f"<h4>{escape(title)}</h4>"
            f"{drawn.svg(width)}</div>"
            for title, drawn in self.maps
        )
        heading = f"<h3>{escape(self.title)}</h3>" if self.title else ""
        caption = f"<figcaption>{escape(self.caption)}</figcaption>" if self.caption else ""
        return f'<figure>{heading}<div class="maps">{cells}</div>{caption}</figure>'

    def _width(self) -> float:
        for in_a_row in (3, 2):
            width = (PAGE - GAP * (in_a_row - 1)) / in_a_row
            if len(self.maps) > 1 and all(drawn.cell(width) >= SMALLEST_CELL for _, drawn in self.maps):
                return width
        return PAGE
