"""The page of `limbeck inspect`: the attention between the tokens of two texts as maps, and the strongest links."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from limbeck.report.blocks import Block, Cell, Column, KeyValue, Section, Table, TableRow, Text
from limbeck.report.heatmaps import Heatmap, HeatmapGrid
from limbeck.report.html import Report

if TYPE_CHECKING:
    from limbeck.evaluation.inspection import Inspection, View

ABOUT = (
    "A row is a token and says where, among the other text's tokens, it looks: shades of a row add up to 1. Values are "
    "means over the attention heads of one layer. Point at a cell to read its value."
)
VIRTUAL = "A virtual map is made of the queries and keys of two texts that the model encodes apart (VIRT Eq. 3)."


def write_inspection(found: Inspection, path: str | Path) -> Path:
    """Write the page, complete or not at all."""
    sections = [_pair(found), _maps(found), _links(found)]
    return Report("Attention between two texts", _subtitle(found), sections).write(path)


def _subtitle(found: Inspection) -> str:
    return " and ".join(f"{view.name} (layer {view.layer} of 0 to {view.layers - 1})" for view in found.views)


def _pair(found: Inspection) -> Section:
    facts = [(f"text {number}", text) for number, text in enumerate(found.texts, 1)]
    facts += [(f"score of the {view.role}", scores_text(view)) for view in found.views]
    if found.distance is not None:
        facts.append(("distance of the maps (Eq. 4)", f"{found.distance:.4f}"))
    return Section("The pair", [KeyValue(facts)])


def _maps(found: Inspection) -> Section:
    blocks: list[Block] = []
    for forward, title in ((True, "From the first text to the second"), (False, "From the second text to the first")):
        high = max(float((view.map.there if forward else view.map.back).max()) for view in found.views)
        maps = [(view_title(view), heatmap(view, forward, high)) for view in found.views]
        blocks.append(HeatmapGrid(maps, title))
    virtual = any(view.virtual for view in found.views)
    shares = [view for view in found.views if not view.virtual]
    blocks += [
        Text(f"{view.name} gives {view.map.share:.0%} of a token's attention to the other text.") for view in shares
    ]
    return Section("Maps", blocks, f"{ABOUT} {VIRTUAL}" if virtual else ABOUT)


def heatmap(view: View, forward: bool, high: float) -> Heatmap:
    """One direction of a model's map."""
    one, words = view.map, (view.map.first, view.map.second)
    rows, columns = words if forward else words[::-1]
    titles = ("text 1", "text 2") if forward else ("text 2", "text 1")
    return Heatmap(rows, columns, (one.there if forward else one.back).tolist(), high, *titles)


def view_title(view: View) -> str:
    return f"{view.role}, {'virtual ' if view.virtual else ''}map of layer {view.layer}"


def scores_text(view: View) -> str:
    return ", ".join(f"{score:.4g}" for score in view.scores)


def _links(found: Inspection) -> Section:
    columns = [Column("From"), Column("To"), Column("Direction"), Column("Model", ".3f")]
    columns += [Column("Teacher", ".3f")] if found.teacher is not None else []
    rows = []
    for link in found.model.links():
        cells: list[Cell] = [link.source, link.target, "1 → 2" if link.forward else "2 → 1", link.weight]
        rows.append(TableRow([*cells, *([found.teacher.weight(link)] if found.teacher is not None else [])]))
    return Section("Strongest links", [Table(columns, rows)], "Where the model looks most.")
