"""Place the labels of a scatter plot so that they cover neither each other nor the points."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Box:
    """A rectangle in pixels, y downwards."""

    left: float
    top: float
    width: float
    height: float

    def overlap(self, other: Box) -> float:
        """The area that two boxes share."""
        across = min(self.left + self.width, other.left + other.width) - max(self.left, other.left)
        down = min(self.top + self.height, other.top + other.height) - max(self.top, other.top)
        return max(across, 0.0) * max(down, 0.0)

    def outside(self, bounds: Box) -> float:
        """The area outside `bounds`."""
        return self.width * self.height - self.overlap(bounds)


@dataclass(frozen=True)
class Placement:
    """A label's box; `leader` means that it is so far from its point that a line should join them."""

    box: Box
    leader: bool


def place_labels(
    points: Sequence[tuple[float, float]],
    sizes: Sequence[tuple[float, float]],
    bounds: Box,
    radius: float = 6.0,
) -> list[Placement]:
    """A position next to each point for a label of each size.

    Greedy, then improved: every label in turn moves to its cheapest position given the others, until none moves.
    Covering another label costs most, then leaving the picture, then covering a point. Otherwise positions near the
    point are preferred, first those on its right.
    """
    obstacles = [Box(x - radius, y - radius, 2 * radius, 2 * radius) for x, y in points]
    choices = [_candidates(point, size, radius) for point, size in zip(points, sizes, strict=True)]
    chosen: list[Placement | None] = [None] * len(points)
    for _ in range(6):
        moved = False
        for index, candidates in enumerate(choices):
            others = [place.box for row, place in enumerate(chosen) if place is not None and row != index]
            costs = [
                50 * sum(candidate.box.overlap(other) for other in others)
                + 20 * candidate.box.outside(bounds)
                + 10 * sum(candidate.box.overlap(obstacle) for obstacle in obstacles)
                + preference
                for preference, candidate in enumerate(candidates)
            ]
            best = candidates[costs.index(min(costs))]
            moved = moved or best != chosen[index]
            chosen[index] = best
        if not moved:
            break
    return [place for place in chosen if place is not None]


def _candidates(point: tuple[float, float], size: tuple[float, float], radius: float) -> list[Placement]:
    """Positions in order of preference: eight around the point, then the same further away."""
    (x, y), (width, height) = point, size
    places = []
    for ring, distance in enumerate((3.0, 14.0, 26.0, 40.0, 56.0)):
        gap = radius + distance
        near = radius * 0.7 + distance * 0.6
        corners = [
            (x + gap, y - height / 2),
            (x - gap - width, y - height / 2),
            (x - width / 2, y - gap - height),
            (x - width / 2, y + gap),
            (x + near, y - near - height / 2 - 2),
            (x + near, y + near - height / 2 + 2),
            (x - near - width, y - near - height / 2 - 2),
            (x - near - width, y + near - height / 2 + 2),
        ]
        places += [Placement(Box(left, top, width, height), leader=ring > 0) for left, top in corners]
    return places
