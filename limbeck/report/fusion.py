"""The page of `limbeck tune`: the measure against alpha, compared with each part alone and reciprocal rank fusion."""

from __future__ import annotations

from pathlib import Path

from limbeck.evaluation.significance import Comparison
from limbeck.evaluation.tune import FOLDS, LUCK, Tuning
from limbeck.report.blocks import Block, Column, Figures, PlotFigure, Section, Table, TableRow, Text
from limbeck.report.formatting import measure_title, p_value, signed
from limbeck.report.html import Report
from limbeck.report.plots import Lines, Series


def fusion_report(found: Tuning, index: str, data: str, split: str, path: Path) -> Path:
    """Write the page as one self-contained file."""
    subtitle = f"{index} · {data} · {found.queries:,} queries of {split}"
    sections = [fusion_result(found), fusion_curve(found)]
    return Report("The weight of the sparse scores", subtitle, sections, footer="Made by limbeck.").write(path)


def finding(found: Tuning) -> str:
    """The result in two sentences about the cross-fitted hybrid, which is also in the table."""
    parts, ranks = found.comparison, found.against_rrf
    hybrid = f"With alpha = {found.alpha:g} the hybrid, cross-fitted, {_verb(parts)} its {found.better_part} part"
    first = f"{hybrid}: {measure_title(found.measure)} {_numbers(parts)}"
    return f"{first} It {_verb(ranks)} reciprocal rank fusion: {_numbers(ranks)}"


def _verb(test: Comparison) -> str:
    """The verb for a comparison. A difference counts if interval and test agree, as in the decision to save alpha."""
    if test.p_values["randomisation"] >= LUCK or test.low <= 0 <= test.high:
        return "does not differ significantly from"
    return "beats" if test.low > 0 else "loses to"


def _numbers(test: Comparison) -> str:
    return (
        f"{test.system:.3f} against {test.baseline:.3f}, {signed(test.difference, 3)} "
        f"[{signed(test.low, 3)}, {signed(test.high, 3)}], p {p_value(test.p_values['randomisation'])}."
    )


def fusion_result(found: Tuning) -> Section:
    """The chosen alpha and its quality."""
    title = measure_title(found.measure)
    tiles = [
        (f"{found.alpha:g}", "alpha", "score = alpha · sparse + dense"),
        (
            f"{found.comparison.system:.3f}",
            f"{title} of the hybrid",
            f"{found.value:.3f} on the queries used for tuning",
        ),
        (f"{found.dense:.3f}", "dense alone", ""),
        (f"{found.sparse:.3f}", "sparse alone", ""),
        (f"{found.rrf:.3f}", "reciprocal rank fusion", "nothing to tune"),
    ]
    explanation = (
        f"The hybrid's {title} is cross-fitted over {FOLDS} folds: each query uses the alpha that is best for "
        "the other folds. The interval is a 95% bootstrap over queries, p comes from a paired randomisation test."
    )
    return Section("Result", [Text(finding(found), lead=True), Figures(tiles)], explanation)


def fusion_curve(found: Tuning) -> Section:
    """The curve and its table. A logarithmic axis has no zero: alpha 0 is the line of the dense part."""
    title = measure_title(found.measure)
    points = [(point.alpha, point.value) for point in found.curve if point.alpha > 0]
    levels = {"dense alone": found.dense, "sparse alone": found.sparse, "reciprocal rank fusion": found.rrf}
    rows = [TableRow([f"{point.alpha:g}", point.value]) for point in found.curve]
    rows += [TableRow([name, level], competes=False) for name, level in levels.items()]
    rows.append(TableRow(["hybrid, cross-fitted", found.comparison.system], competes=False))
    note = "The best alpha is highlighted. It was chosen on these queries, so its value is a little too good."
    blocks: list[Block] = [Table([Column("alpha"), Column(title, ".4f", "high")], rows, note)]
    if points:
        ends = (points[0][0], points[-1][0])
        series = [Series(name, [(alpha, level) for alpha in ends]) for name, level in levels.items()]
        plot = Lines([Series("hybrid", points), *series], "alpha", title, log_x=True)
        blocks.insert(0, PlotFigure(plot, f"{title} on {found.queries:,} queries."))
    return Section("Curve", blocks, "To the left the hybrid becomes its dense part, to the right its sparse one.")
