"""The frame of a plot: axes, grid, titles, legend, and the SVG element around them.

Colours are CSS classes (`series-0`, `kind-teacher`), so that one drawing works on light and dark pages.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from html import escape

from limbeck.report.scales import Scale, scale_for, shortened, text_width, tick_label

FONT = 13.0
LINE = 18.0


@dataclass
class Frame:
    """Scales and their pixel rectangle; collects the marks of one plot.

    `x_values` are the values to label on the x axis; round values by default.
    """

    width: float
    height: float
    x: Scale
    y: Scale
    x_title: str
    y_title: str
    marks: list[str] = field(default_factory=list)
    x_values: Sequence[float] = ()

    def svg(self, description: str, legend: str = "") -> str:
        """The finished drawing; screen readers read `description`."""
        parts = [
            f'<svg viewBox="0 0 {self.width:.0f} {self.height:.0f}" width="{self.width:.0f}" role="img" '
            f'aria-label="{escape(description)}">',
            *self._grid(),
            legend,
            *self.marks,
            "</svg>",
        ]
        return "\n".join(part for part in parts if part)

    def _grid(self) -> Iterable[str]:
        left, right, bottom, top = self.x.start, self.x.end, self.y.start, self.y.end
        for value in self.y.ticks(max(3, int((bottom - top) / 55))):
            y = self.y(value)
            yield line(left, y, right, y, "grid")
            yield text(left - 8, y + 4, tick_label(value), "tick", "end")
        for value in self._x_ticks():
            x = self.x(value)
            yield line(x, top, x, bottom, "grid")
            yield text(x, bottom + 18, tick_label(value), "tick", "middle")
        yield line(left, bottom, right, bottom, "axis")
        yield text(right, bottom + 38, self.x_title, "axis-title", "end")
        yield text(0, top - 14, self.y_title, "axis-title", "start")

    def _x_ticks(self) -> list[float]:
        """As many ticks as fit with space between their labels."""
        kept: list[float] = []
        for value in self.x_values or self.x.ticks(max(4, int((self.x.end - self.x.start) / 90))):
            half = text_width(tick_label(value), FONT) / 2 + 5
            if not kept or self.x(value) - half > self.x(kept[-1]) + text_width(tick_label(kept[-1]), FONT) / 2:
                kept.append(value)
        return kept


def frame_for(
    xs: Sequence[float],
    ys: Sequence[float],
    size: tuple[float, float],
    titles: tuple[str, str],
    log_x: bool = False,
    legend_height: float = 0.0,
    x_padding: float = 0.08,
    y_from_zero: bool = False,
    log_y: bool = False,
) -> Frame:
    """Axes around all values; the left margin is as wide as the y labels need."""
    width, height = size
    top, bottom = 34 + legend_height, height - 48
    y = scale_for([0.0, *ys] if y_from_zero else ys, bottom, top, log_y)
    if y_from_zero:
        y = Scale(0.0, y.high, bottom, top)
    ticks = y.ticks(max(3, int((bottom - top) / 55)))
    left = 16 + max(text_width(tick_label(value), FONT) for value in ticks)
    return Frame(width, height, scale_for(xs, left, width - 14, log_x, x_padding), y, *titles)


def legend(names: Sequence[str], classes: Sequence[str], width: float) -> tuple[str, float]:
    """Swatches and names in as many rows as needed, and their height; nothing for a single series."""
    if len(names) < 2:
        return "", 0.0
    x, y, parts = 0.0, LINE - 4, []
    for name, css in zip(names, classes, strict=True):
        shown = shortened(name, width - 40, FONT)
        need = 28 + text_width(shown, FONT) + 18
        if x > 0 and x + need > width:
            x, y = 0.0, y + LINE + 2
        parts.append(f'<line x1="{x:.1f}" y1="{y - 4:.1f}" x2="{x + 20:.1f}" y2="{y - 4:.1f}" class="line {css}"/>')
        parts.append(text(x + 28, y, shown, "legend", "start"))
        x += need
    return "\n".join(parts), y + 10


def line(x1: float, y1: float, x2: float, y2: float, css: str) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" class="{css}"/>'


def text(x: float, y: float, content: str, css: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" class="{css}" text-anchor="{anchor}">{escape(content)}</text>'


def tooltip(content: str) -> str:
    return f"<title>{escape(content)}</title>"
