"""The learning curves of a run: the dev measure of all models in one plot, the loss of each in its own plot.

A model that was trained with several seeds is one curve, their mean. If a sweep tuned settings, only the chosen ones
are shown. The teacher has its own plots, because it trains for other numbers of steps.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from limbeck.report.blocks import Block, Cell, Column, PlotFigure, PlotGrid, Section, Table, TableRow, Text
from limbeck.report.colours import TEACHER
from limbeck.report.formatting import measure_title, short_names
from limbeck.report.plots import Lines, Series, series_style
from limbeck.report.run_files import LogLine, ModelRow, RunFiles

MOST_POINTS = 150
Points = list[tuple[float, float]]
Placed = list[tuple[float, LogLine]]  # log lines with their steps counted through all stages


class Curve(NamedTuple):
    """The mean over seeds, and the lowest and highest value at every point if there are several seeds."""

    points: Points
    band: Points


def learning_curves(run: RunFiles) -> Section | None:
    """Losses of different objectives have different units, so each has its own axis."""
    groups, left_out = _by_row(run)
    short = dict(zip(groups, short_names(list(groups)), strict=True))
    models = {
        short[name]: [_over_all_stages([line for line in run.log if line.model == model]) for model in some]
        for name, some in groups.items()
    }
    numbers = {short[name]: run.colours[name] for name in groups}
    blocks = _dev(models, numbers) + _losses(models, numbers)
    lines = [line for seeds in models.values() for seed in seeds for _, line in seed]
    broken = sum(line.loss is not None and not math.isfinite(line.loss) for line in lines)
    if broken:
        blocks.append(Text(f"{broken:,} logged losses were not finite and are left out: the training diverged there."))
    return Section("Learning curves", blocks, _explanation(models, left_out)) if blocks else None


def _by_row(run: RunFiles) -> tuple[dict[str, list[str]], int]:
    """The logged models of each row, one per seed, and the number of rejected settings.

    A sweep logs a student as the name of its row, the setting that was tried, and the seed.
    """
    logged = list(dict.fromkeys(line.model for line in run.log))
    groups: dict[str, list[str]] = {}
    left_out = 0
    for model in logged:
        row = next((row for row in run.metrics.rows if _is_of(model, row)), None)
        if row is None and model != TEACHER and any(row.chosen for row in run.metrics.rows):
            left_out += 1
            continue
        groups.setdefault(row.name if row is not None else model, []).append(model)
    return groups, left_out


def _is_of(model: str, row: ModelRow) -> bool:
    whole = row.logged or (f"{row.name}, {row.chosen}" if row.chosen else row.name)
    return re.sub(r", seed \d+$", "", model) == whole


def _explanation(models: Mapping[str, Sequence[Placed]], left_out: int) -> str:
    parts = []
    if any(len(seeds) > 1 for seeds in models.values()):
        parts.append("Means over seeds; a band reaches from the lowest seed to the highest.")
    if left_out:
        settings = "1 setting that was" if left_out == 1 else f"{left_out:,} settings that were"
        parts.append(f"{settings} tried and not chosen on dev {'is' if left_out == 1 else 'are'} left out.")
    return " ".join(parts)


def _dev(models: Mapping[str, Sequence[Placed]], colours: Mapping[str, int]) -> list[Block]:
    """The dev measure as a solid line, on training queries dashed; a table if it was measured only once."""
    lines = [line for seeds in models.values() for seed in seeds for _, line in seed]
    measure = next((name for line in lines for name in line.dev), "")
    sides = {
        name: [_curve([_finite_dev(seed, key) for seed in seeds]) for key in (measure, f"train {measure}")]
        for name, seeds in models.items()
    }
    sides = {name: pair for name, pair in sides.items() if any(curve.points for curve in pair)}
    if not sides:
        return []
    if all(len(curve.points) <= 1 for pair in sides.values() for curve in pair):
        return [_once(sides, measure)]
    students = {name: pair for name, pair in sides.items() if name != TEACHER}
    teacher = {name: pair for name, pair in sides.items() if name == TEACHER}
    blocks: list[Block] = [PlotFigure(_dev_plot(students, measure, colours), "", 360)] if students else []
    return blocks + ([PlotFigure(_dev_plot(teacher, measure, colours), "The teacher.", 260)] if teacher else [])


def _dev_plot(sides: Mapping[str, Sequence[Curve]], measure: str, colours: Mapping[str, int]) -> Lines:
    series = [
        Series(
            f"{name}{', on train' if dash else ''}",
            curve.points,
            style=series_style(colours[name], dash),
            band=curve.band,
            in_legend=not dash,
        )
        for name, pair in sides.items()
        for dash, curve in enumerate(pair)
        if curve.points
    ]
    trained = ", dashed: on train" if any(train.points for _, train in sides.values()) else ""
    return Lines(series, "step", f"{measure_title(measure)} on dev{trained}")


def _finite_dev(seed: Placed, key: str) -> Points:
    return [(x, line.dev[key]) for x, line in seed if math.isfinite(line.dev.get(key, math.nan))]


def _once(sides: Mapping[str, Sequence[Curve]], measure: str) -> Table:
    """A table for values that were measured only once."""
    trained = any(train.points for _, train in sides.values())
    columns = [Column("Model"), Column(f"{measure_title(measure)} on dev", ".3f", "high")]
    columns += [Column("on train", ".3f")] if trained else []
    rows = []
    for name, pair in sides.items():
        cells: list[Cell] = [curve.points[0][1] if curve.points else None for curve in pair]
        rows.append(TableRow([name, *cells[: len(columns) - 1]], competes=name != TEACHER))
    return Table(
        columns, rows, "Measured once, at the end of training; set eval_every of a stage to measure more often."
    )


def _losses(models: Mapping[str, Sequence[Placed]], colours: Mapping[str, int]) -> list[Block]:
    curves = {
        name: _curve([[(x, line.loss) for x, line in seed if _is_finite(line.loss)] for seed in seeds])  # type: ignore[misc]
        for name, seeds in models.items()
    }
    plots = [
        (name, Lines([_thin(curve, series_style(colours[name], 0))], "step", "loss"))
        for name, curve in curves.items()
        if curve.points
    ]
    if not plots:
        return []
    caption = "Training loss. The objectives have different units: compare shapes, not heights."
    if any(len(curve.points) > MOST_POINTS for curve in curves.values()):
        caption += " Long curves show the means of neighbouring steps."
    return [PlotGrid(plots, caption)]


def _is_finite(loss: float | None) -> bool:
    return loss is not None and math.isfinite(loss)


def _thin(curve: Curve, style: str) -> Series:
    lows = thinned([(x, low) for (x, _), (low, _) in zip(curve.points, curve.band, strict=False)])
    highs = thinned([(x, high) for (x, _), (_, high) in zip(curve.points, curve.band, strict=False)])
    band = [(low, high) for (_, low), (_, high) in zip(lows, highs, strict=True)]
    return Series("loss", thinned(curve.points), style=style, band=band)


def _curve(seeds: Sequence[Points]) -> Curve:
    """The mean at the steps that all seeds have in common."""
    seeds = [points for points in seeds if points]
    if len(seeds) < 2:
        return Curve(seeds[0] if seeds else [], [])
    by_step = [dict(points) for points in seeds]
    steps = sorted(set.intersection(*(set(points) for points in by_step)))
    values = [[points[step] for points in by_step] for step in steps]
    points = [(step, sum(some) / len(some)) for step, some in zip(steps, values, strict=True)]
    return Curve(points, [(min(some), max(some)) for some in values])


def _over_all_stages(lines: Sequence[LogLine]) -> Placed:
    """Log lines with steps counted through all stages, because every stage may start at 0."""
    placed: Placed = []
    last = 0
    for stage in sorted({line.stage for line in lines}):
        steps = sorted((line for line in lines if line.stage == stage), key=lambda line: line.step)
        offset = last if steps[0].step <= last else 0
        placed += [(float(offset + line.step), line) for line in steps]
        last = offset + steps[-1].step
    return placed


def thinned(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """At most MOST_POINTS points: the means of neighbours."""
    if len(points) <= MOST_POINTS:
        return list(points)
    size = math.ceil(len(points) / MOST_POINTS)
    blocks = [points[start : start + size] for start in range(0, len(points), size)]
    return [(sum(x for x, _ in b) / len(b), sum(y for _, y in b) / len(b)) for b in blocks]
