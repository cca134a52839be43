"""A map of attention in a terminal: shades for values, words on both axes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.text import Text

if TYPE_CHECKING:
    import numpy as np
    from rich.console import Console

    from limbeck.evaluation.inspection import Inspection, View

SHADES = " ·░▒▓█"  # from 0 to the largest value; also legible without colours
COLOURS = ("", "color(24)", "color(31)", "color(38)", "color(80)", "color(159)")
CELL = 2  # characters
LONGEST = 14  # characters of a word


def print_inspection(console: Console, found: Inspection) -> None:
    """Scores, the map of each model in both directions, and the strongest links."""
    for view in found.views:
        kind = "virtual map" if view.virtual else f"map ({view.map.share:.0%} of attention is between the texts)"
        head = Text(view.name, style="bold")
        head.append(f"  score {', '.join(f'{score:.4g}' for score in view.scores)}", style="")
        head.append(f"  {kind}, layer {view.layer} of 0 to {view.layers - 1}", style="dim")
        console.print(head, soft_wrap=True)
    for forward, title in ((True, "text 1 → text 2"), (False, "text 2 → text 1")):
        high = max(float(_values(view, forward).max()) for view in found.views)
        for view in found.views:
            name = f"{title}, {view.role}" if len(found.views) > 1 else title
            console.print()
            console.print(Text(name, style="bold"))
            _print_map(console, view, forward, high)
    _print_links(console, found)


def _values(view: View, forward: bool) -> np.ndarray:
    return view.map.there if forward else view.map.back


def _print_map(console: Console, view: View, forward: bool, high: float) -> None:
    """Rows of shades; as many columns as the terminal has room for."""
    rows, columns = (view.map.first, view.map.second) if forward else (view.map.second, view.map.first)
    values = _values(view, forward)
    margin = min(LONGEST, max(map(len, rows))) + 1
    room = max(1, (console.width - margin) // CELL)
    shown = columns[:room]
    for line in _headings(shown):
        console.print(Text(" " * margin + line, style="dim"), soft_wrap=True, no_wrap=True)
    for word, row in zip(rows, values, strict=True):
        text = Text(f"{word[:LONGEST]:>{margin - 1}} ")
        for value in row[: len(shown)]:
            shade = _shade(float(value), high)
            text.append(SHADES[shade] * CELL, COLOURS[shade])
        console.print(text, soft_wrap=True, no_wrap=True)
    if len(columns) > len(shown):
        console.print(Text(f"and {len(columns) - len(shown)} more columns; --out FILE.html shows more", style="dim"))


def _headings(words: tuple[str, ...]) -> list[str]:
    """Words from top to bottom, one above each column, aligned at their ends."""
    cut = [word[:LONGEST] for word in words]
    depth = max(map(len, cut))
    return ["".join(word.rjust(depth)[at].ljust(CELL) for word in cut) for at in range(depth)]


def _shade(value: float, high: float) -> int:
    """0 for nothing, then five equal steps up to the largest value."""
    step = value / high * (len(SHADES) - 1) if high else 0.0
    return min(len(SHADES) - 1, int(step + 0.5))


def _print_links(console: Console, found: Inspection) -> None:
    console.print()
    console.print(Text("strongest links", style="bold"))
    for link in found.model.links():
        line = Text(f"  {'1 → 2' if link.forward else '2 → 1'}  {link.source} → {link.target}  {link.weight:.3f}")
        if found.teacher is not None:
            line.append(f"  (teacher {found.teacher.weight(link):.3f})", style="dim")
        console.print(line, soft_wrap=True)
    if found.distance is not None:
        console.print(Text(f"distance of the maps (Eq. 4): {found.distance:.4f}"))
