"""A plot of unlabelled points in groups: the colour shows the group, squares are marked points."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from limbeck.report.plot_axes import frame_for, legend, tooltip
from limbeck.report.plots import series_class


@dataclass(frozen=True)
class CloudPoint:
    """A point; `hint` is its tooltip."""

    x: float
    y: float
    group: str
    marked: bool = False
    hint: str = ""


@dataclass(frozen=True)
class Cloud:
    """Points coloured by group; groups are numbered by first appearance."""

    points: Sequence[CloudPoint]
    x_title: str
    y_title: str

    def svg(self, width: float, height: float) -> str:
        groups = list(dict.fromkeys(point.group for point in self.points))
        classes = {group: series_class(number) for number, group in enumerate(groups)}
        key, key_height = legend(groups, list(classes.values()), width)
        frame = frame_for(
            [point.x for point in self.points],
            [point.y for point in self.points],
            (width, height + key_height),
            (self.x_title, self.y_title),
            legend_height=key_height,
        )
        for point in self.points:
            x, y = frame.x(point.x), frame.y(point.y)
            shape = f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" class="dot"/>'
            if point.marked:
                shape = f'<rect x="{x - 5:.1f}" y="{y - 5:.1f}" width="10" height="10" class="dot"/>'
            hit = f'<circle cx="{x:.1f}" cy="{y:.1f}" r="8" class="hit"/>'
            frame.marks.append(f'<g class="point {classes[point.group]}">{tooltip(point.hint)}{hit}{shape}</g>')
        return frame.svg(f"{len(self.points)} points of {len(groups)} groups: {', '.join(groups)}", key)
