"""The plots of a report as inline SVG: scatter, lines, bars, histogram."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

from limbeck.report.labels import Box, place_labels
from limbeck.report.plot_axes import FONT, Frame, frame_for, legend, line, text, tooltip
from limbeck.report.scales import shortened, text_width, tick_label

SERIES_COLOURS = 8
MOST_MARKERS = 40
MOST_FILLED = 3


@dataclass(frozen=True)
class Point:
    """A labelled point; `kind` decides its colour and shape, `note` is the second line of the tooltip."""

    x: float
    y: float
    label: str
    kind: str = "student"
    note: str = ""
    labelled: bool = True  # otherwise its label is only in the tooltip


@dataclass(frozen=True)
class Scatter:
    """Points with labels next to them; `path` joins some places by a line."""

    points: Sequence[Point]
    x_title: str
    y_title: str
    log_x: bool = False
    path: Sequence[tuple[float, float]] = ()

    def svg(self, width: float, height: float) -> str:
        frame = frame_for(
            [point.x for point in self.points],
            [point.y for point in self.points],
            (width, height),
            (self.x_title, self.y_title),
            self.log_x,
        )
        places = [(frame.x(point.x), frame.y(point.y)) for point in self.points]
        joined = " ".join(f"{frame.x(x):.1f},{frame.y(y):.1f}" for x, y in self.path)
        frame.marks += [f'<polyline points="{joined}" class="line series-0 dash-1"/>'] if joined else []
        frame.marks += self._labels(frame, places)
        for point, (x, y) in zip(self.points, places, strict=True):
            across = tick_label(float(f"{point.x:.3g}"))
            hover = f"{point.label}\n{self.y_title} {tick_label(round(point.y, 4))}\n{self.x_title} {across}"
            hint = tooltip(f"{hover}\n{point.note}" if point.note else hover)
            frame.marks.append(f'<g class="point kind-{point.kind}">{hint}{_marker(point.kind, x, y)}</g>')
        names = ", ".join(f"{point.label} at {point.x:.3g}, {point.y:.3g}" for point in self.points)
        return frame.svg(f"{self.y_title} against {self.x_title}: {names}")

    def _labels(self, frame: Frame, places: Sequence[tuple[float, float]]) -> list[str]:
        names = [shortened(point.label, frame.width * 0.45, FONT) if point.labelled else "" for point in self.points]
        sizes = [(text_width(name, FONT), FONT + 3) for name in names]
        bounds = Box(frame.x.start, frame.y.end, frame.x.end - frame.x.start + 10, frame.y.start - frame.y.end)
        marks = []
        for name, (x, y), placed in zip(names, places, place_labels(places, sizes, bounds), strict=True):
            box = placed.box
            if not name:
                continue
            if placed.leader:
                near_x = min(max(x, box.left), box.left + box.width)
                near_y = min(max(y, box.top), box.top + box.height)
                marks.append(line(x, y, near_x, near_y, "leader"))
            # Anchored at the side of the point, so that a narrow font leaves no gap there.
            right_of_it, left_of_it = box.left >= x, box.left + box.width <= x
            anchor = "start" if right_of_it else "end" if left_of_it else "middle"
            at = box.left + (0 if right_of_it else box.width if left_of_it else box.width / 2)
            marks.append(text(at, box.top + FONT, name, "label", anchor))
        return marks


def _marker(kind: str, x: float, y: float) -> str:
    """A different shape for each kind, so that they can be distinguished without colour."""
    hit = f'<circle cx="{x:.1f}" cy="{y:.1f}" r="12" class="hit"/>'
    if kind == "teacher":
        return f'{hit}<rect x="{x - 5.5:.1f}" y="{y - 5.5:.1f}" width="11" height="11" rx="1.5"/>'
    if kind == "baseline":
        corners = f"{x:.1f},{y - 7:.1f} {x + 7:.1f},{y:.1f} {x:.1f},{y + 7:.1f} {x - 7:.1f},{y:.1f}"
        return f'{hit}<polygon points="{corners}"/>'
    return f'{hit}<circle cx="{x:.1f}" cy="{y:.1f}" r="6"/>'


def series_class(index: int) -> str:
    """Colour and dashes: 8 by 4 combinations before one is repeated."""
    return f"series-{index % SERIES_COLOURS} dash-{(index + index // SERIES_COLOURS) % 4}"


def series_style(colour: int, dash: int) -> str:
    """A colour with given dashes: the colour shows the model, the dashes something else."""
    return f"series-{colour % SERIES_COLOURS} dash-{dash}"


@dataclass(frozen=True)
class Series:
    """A named line through (x, y) points.

    `errors` are the (low, high) ends of an error bar for each point, `band` those of an area around the line. `style`
    replaces the class that the position among the other series would give, for example if two lines share a colour but
    have different dashes. A series that is not `in_legend` is only named in its tooltips.
    """

    name: str
    points: Sequence[tuple[float, float]]
    errors: Sequence[tuple[float, float]] = ()
    style: str = ""
    band: Sequence[tuple[float, float]] = ()
    in_legend: bool = True


@dataclass(frozen=True)
class Level:
    """A named level, drawn across the whole plot with its name on the line."""

    name: str
    y: float
    style: str


@dataclass(frozen=True)
class Lines:
    """Several series over one x axis, with a legend when there are two or more.

    `label_points` labels the measured x values instead of round numbers. `levels` are values that do not depend on x.
    """

    series: Sequence[Series]
    x_title: str
    y_title: str
    log_x: bool = False
    log_y: bool = False
    label_points: bool = False
    levels: Sequence[Level] = ()

    def svg(self, width: float, height: float) -> str:
        classes = [series.style or series_class(at) for at, series in enumerate(self.series)]
        named = [(series.name, css) for series, css in zip(self.series, classes, strict=True) if series.in_legend]
        key, key_height = legend([name for name, _ in named], [css for _, css in named], width)
        values = [point for series in self.series for point in series.points]
        ends = [end for series in self.series for pair in (*series.errors, *series.band) for end in pair]
        titles = (self.x_title, self.y_title)
        frame = frame_for(
            [x for x, _ in values],
            [*(y for _, y in values), *ends, *(level.y for level in self.levels)],
            (width, height + key_height),
            titles,
            self.log_x,
            legend_height=key_height,
            x_padding=0.02,
            log_y=self.log_y,
        )
        if self.label_points:
            frame.x_values = sorted({x for x, _ in values})
        for series, css in zip(self.series, classes, strict=True):
            frame.marks += self._line(frame, series, css)
        frame.marks += self._levels(frame)
        last = ", ".join(f"{series.name} ends at {series.points[-1][1]:.3g}" for series in self.series)
        return frame.svg(f"{self.y_title} by {self.x_title}: {last}", key)

    def _line(self, frame: Frame, series: Series, css: str) -> list[str]:
        places = [(frame.x(x), frame.y(y)) for x, y in series.points]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        marks = [self._band(frame, series, css)] if series.band else []
        marks += [f'<polyline points="{path}" class="line {css}"/>'] if len(places) > 1 else []
        bars = zip(places, series.errors, strict=bool(series.errors))
        marks += [_error_bar(x, frame.y(low), frame.y(high), css) for (x, _), (low, high) in bars]
        visible = "" if len(places) <= MOST_MARKERS else " quiet"
        for (x, y), (at, value) in zip(places, series.points, strict=True):
            hint = tooltip(f"{series.name}\n{self.x_title} {tick_label(at)}\n{self.y_title} {value:.4g}")
            dot = f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" class="dot{visible}"/>'
            marks.append(f'<g class="point {css}">{hint}<circle cx="{x:.1f}" cy="{y:.1f}" r="8" class="hit"/>{dot}</g>')
        return marks

    def _levels(self, frame: Frame) -> list[str]:
        """Names are at the left, where rising curves are low: above their lines, or below if that place is occupied."""
        marks, above = [], -math.inf
        for level in sorted(self.levels, key=lambda level: -level.y):
            y = frame.y(level.y)
            at = y - 6 if y - above > 2 * FONT else y + FONT + 2
            hint = tooltip(f"{level.name}\n{self.y_title} {level.y:.4g}")
            drawn = line(frame.x.start, y, frame.x.end, y, f"line {level.style}")
            marks.append(
                f'<g class="level">{hint}{drawn}{text(frame.x.start + 6, at, level.name, "label", "start")}</g>'
            )
            above = max(y, at)
        return marks

    def _band(self, frame: Frame, series: Series, css: str) -> str:
        ends = [(frame.x(x), *pair) for (x, _), pair in zip(series.points, series.band, strict=True)]
        corners = [*((x, high) for x, _, high in ends), *((x, low) for x, low, _ in reversed(ends))]
        path = " ".join(f"{x:.1f},{frame.y(y):.1f}" for x, y in corners)
        return f'<polygon points="{path}" class="band {css}"/>'


def _error_bar(x: float, low: float, high: float, css: str) -> str:
    """A vertical stroke with a cap at both ends, all in pixels."""
    strokes = [(x, low, x, high), (x - 4, low, x + 4, low), (x - 4, high, x + 4, high)]
    return "".join(line(*stroke, f"error {css}") for stroke in strokes)


@dataclass(frozen=True)
class Bars:
    """Bars up or down from zero, side by side, each with a tooltip; `widths` gives the width of each bar in x."""

    values: Sequence[float]
    hints: Sequence[str]
    x_title: str
    y_title: str
    widths: Sequence[float] = ()

    def svg(self, width: float, height: float) -> str:
        widths = self.widths or [1.0] * len(self.values)
        ends = list(accumulate(widths))
        titles = (self.x_title, self.y_title)
        frame = frame_for([0.0, ends[-1]], [0.0, *self.values], (width, height), titles, x_padding=0)
        gap = 0.0 if len(self.values) > MOST_MARKERS else 0.1
        for value, hint, wide, end in zip(self.values, self.hints, widths, ends, strict=True):
            left, right = frame.x(end - (1 - gap) * wide), frame.x(end - gap * wide)
            top, bottom = sorted((frame.y(value), frame.y(0)))
            # As high as the plot, so that the smallest bar has a tooltip.
            hit = f'<rect x="{left:.2f}" y="{frame.y.end:.1f}" width="{right - left:.2f}" '
            hit += f'height="{frame.y.start - frame.y.end:.1f}" class="hit"/>'
            bar = f'<rect x="{left:.2f}" y="{top:.1f}" width="{right - left:.2f}" height="{bottom - top:.1f}"/>'
            css = "rise" if value >= 0 else "fall"
            frame.marks.append(f'<g class="bar {css}">{tooltip(hint)}{hit}{bar}</g>')
        frame.marks.append(line(frame.x.start, frame.y(0), frame.x.end, frame.y(0), "axis"))
        ups, downs = (
            sum(wide for wide, value in zip(widths, self.values, strict=True) if sign * value > 0) for sign in (1, -1)
        )
        return frame.svg(f"{self.y_title}: {ups:g} {self.x_title} above zero, {downs:g} below, of {ends[-1]:g}")


@dataclass(frozen=True)
class Histogram:
    """The shares of several samples in equal bins, in one plot."""

    samples: dict[str, Sequence[float]]
    x_title: str
    bins: int = 30

    def svg(self, width: float, height: float) -> str:
        everything = [value for sample in self.samples.values() for value in sample]
        low, high = min(everything), max(everything)
        if low == high:
            low, high = low - 0.5, high + 0.5
        shares = {name: bin_shares(sample, low, high, self.bins) for name, sample in self.samples.items()}
        return BinnedHistogram(shares, low, high, self.x_title).svg(width, height)


@dataclass(frozen=True)
class BinnedHistogram:
    """A histogram of samples that are binned already: name -> shares in equal bins of low..high.

    `styles` replace the classes from the positions of the samples. More than MOST_FILLED samples are drawn as outlines.
    """

    shares: Mapping[str, Sequence[float]]
    low: float
    high: float
    x_title: str
    styles: Sequence[str] = ()

    def svg(self, width: float, height: float) -> str:
        names = list(self.shares)
        classes = self.styles or [series_class(index) for index in range(len(names))]
        key, key_height = legend(names, classes, width)
        peaks = [share for values in self.shares.values() for share in values]
        size, titles = (width, height + key_height), (self.x_title, "share")
        ends = [self.low, self.high]
        frame = frame_for(ends, peaks, size, titles, legend_height=key_height, x_padding=0.02, y_from_zero=True)
        for name, css in zip(names, classes, strict=True):
            frame.marks += self._steps(frame, name, css)
        return frame.svg(f"Distribution of {self.x_title} for {', '.join(names)}", key)

    def _steps(self, frame: Frame, name: str, css: str) -> list[str]:
        shares, low = self.shares[name], self.low
        step = (self.high - low) / len(shares)
        corners = [(frame.x(low), frame.y(0))]
        marks = []
        for index, share in enumerate(shares):
            left, right = low + index * step, low + (index + 1) * step
            corners += [(frame.x(left), frame.y(share)), (frame.x(right), frame.y(share))]
            hint = tooltip(f"{name}\n{left:.3g} to {right:.3g}\n{share:.1%}")
            box = f'x="{frame.x(left):.1f}" width="{frame.x(right) - frame.x(left):.1f}"'
            tall = f'y="{frame.y(share):.1f}" height="{max(frame.y(0) - frame.y(share), 0):.1f}"'
            marks.append(f'<g class="point">{hint}<rect {box} {tall} class="hit"/></g>')
        corners.append((frame.x(low + len(shares) * step), frame.y(0)))
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in corners)
        kind = "area" if len(self.shares) <= MOST_FILLED else "outline"
        return [f'<polygon points="{path}" class="{kind} {css}"/>', *marks]


def bin_shares(sample: Sequence[float], low: float, high: float, bins: int) -> list[float]:
    """The share of a sample in each of `bins` equal bins of low..high; the last bin includes its upper end."""
    counts = [0] * bins
    for value in sample:
        counts[min(math.floor((value - low) / (high - low) * bins), bins - 1)] += 1
    return [count / max(len(sample), 1) for count in counts]
