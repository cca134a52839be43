"""The learning curves of a run: the dev measure of all models in one picture, the loss of each in its own."""

from __future__ import annotations

import math
from collections.abc import Sequence

from limbeck.report.blocks import Block, PlotFigure, PlotGrid, Section, Text
from limbeck.report.plots import Lines, Series
from limbeck.report.run_files import LogLine, RunFiles
from limbeck.report.words import measure_title, short_names

MOST_POINTS = 150


def learning_curves(run: RunFiles) -> Section | None:
    """Losses of different objectives have different units, so each has its own axis."""
    models = list(dict.fromkeys(line.model for line in run.log))
    names = dict(zip(models, short_names(models), strict=True))
    curves = {model: _over_all_stages([line for line in run.log if line.model == model]) for model in models}
    colours = {name: index for index, name in enumerate(names.values())}
    blocks: list[Block] = []
    measure = next((name for line in run.log for name in line.dev), "")
    dev = [
        Series(f"{names[model]}{where}", points)
        for model, lines in curves.items()
        for where, key in (("", measure), (", on train", f"train {measure}"))
        if (points := [(x, line.dev[key]) for x, line in lines if math.isfinite(line.dev.get(key, math.nan))])
    ]
    if dev:
        plot = Lines(dev, "step", f"{measure_title(measure)} on dev")
        blocks.append(PlotFigure(plot, height=360))
    losses = {
        names[model]: points
        for model, lines in curves.items()
        if (points := [(x, line.loss) for x, line in lines if line.loss is not None and math.isfinite(line.loss)])
    }
    if losses:
        plots = [
            (name, Lines([Series("loss", thinned(points))], "step", "loss", colours[name]))
            for name, points in losses.items()
        ]
        caption = "Training loss. The objectives have units of their own: compare shapes, not heights."
        if any(len(points) > MOST_POINTS for points in losses.values()):
            caption += " Long curves show the means of neighbouring steps."
        blocks.append(PlotGrid(plots, caption))
    broken = sum(line.loss is not None and not math.isfinite(line.loss) for line in run.log)
    if broken:
        blocks.append(Text(f"{broken:,} logged losses were not finite and are left out: the training diverged there."))
    return Section("Learning curves", blocks) if blocks else None


def _over_all_stages(lines: Sequence[LogLine]) -> list[tuple[float, LogLine]]:
    """Lines with the step counted through all stages, where every stage may count from the start again."""
    placed: list[tuple[float, LogLine]] = []
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
