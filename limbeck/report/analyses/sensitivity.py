"""How quality depends on one setting: the list size K ("In defense of dual-encoders", Table 6), the student's size
(Tables 4, 5), or any other number that was varied."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

from limbeck.errors import LimbeckError
from limbeck.report.analyses.base import Result, finite_quality
from limbeck.report.analyses.registry import Analysis, analysis
from limbeck.report.analyses.spread import Spread, spread
from limbeck.report.blocks import Block, Column, PlotFigure, Section, Table, TableRow, Text
from limbeck.report.colours import Colours
from limbeck.report.formatting import measure_title
from limbeck.report.plots import Lines, Series, series_class

ENOUGH = 0.01  # relative to the best quality: smaller gains do not justify a larger setting
WIDE = 8  # an axis is logarithmic if the largest value is this many times the smallest


class SettingPoint(NamedTuple):
    """The quality of one line (an objective, a model kind) at one value of the setting."""

    name: str
    value: float
    quality: float
    seed: int = 0


class SettingResult(Result):
    """One value of the setting, over its seeds."""

    value: float
    quality: Spread


class SensitivityLine(Result):
    """One objective or model kind over all values; `enough` is the smallest value nearly as good as the best."""

    name: str
    results: tuple[SettingResult, ...]  # values ascending
    best: float
    enough: float


@analysis
class Sensitivity(Analysis):
    """Quality against one setting."""

    name = "sensitivity"
    title = "Sensitivity"
    about = "quality along the number that a sweep varies"
    place = 10
    made_by = "a sweep over one number makes it automatically, e.g. limbeck sweep --over student.dim=64,128"

    setting: str
    measure: str
    tolerance: float
    lines: tuple[SensitivityLine, ...]

    def section(self, colours: Colours) -> Section:
        return sensitivity_section(self, colours)


def sensitivity(
    points: Iterable[SettingPoint | tuple[str, float, float, int]],
    setting: str = "documents per query",
    measure: str = "mrr@10",
    tolerance: float = ENOUGH,
) -> Sensitivity:
    """Means and spread over seeds for each line and value; at least two values of the setting are required.

    "Nearly as good as the best" means: lower by no more than `tolerance` times the best mean.
    """
    runs: dict[str, dict[float, dict[int, float]]] = defaultdict(lambda: defaultdict(dict))
    for point in (SettingPoint(*point) for point in points):
        where = f"{point.name}, {setting} {point.value:g}, seed {point.seed}"
        finite_quality(where, [point.quality])
        if point.seed in runs[point.name][point.value]:
            raise LimbeckError(f"{where}: given twice; keep one of the two, or give the seeds their own numbers")
        runs[point.name][point.value][point.seed] = point.quality
    if not runs:
        raise LimbeckError(f"there are no points; give name, {setting}, quality and seed of each run")
    if len({value for values in runs.values() for value in values}) < 2:
        raise LimbeckError(f"all points have the same {setting}; measure at two values or more")
    lines = [_line(name, values, tolerance) for name, values in runs.items()]
    return Sensitivity(setting=setting, measure=measure, tolerance=tolerance, lines=tuple(lines))


def _line(name: str, values: dict[float, dict[int, float]], tolerance: float) -> SensitivityLine:
    results = [SettingResult(value=value, quality=spread([*values[value].values()])) for value in sorted(values)]
    best = max(results, key=lambda each: each.quality.mean)
    floor = best.quality.mean - tolerance * abs(best.quality.mean)
    enough = next(each.value for each in results if each.quality.mean >= floor)
    return SensitivityLine(name=name, results=tuple(results), best=best.value, enough=enough)


def sensitivity_section(result: Sensitivity, colours: Colours | None = None) -> Section:
    """A sentence for each line, the plot with error bars, and the table."""
    blocks: list[Block] = [Text(" ".join(_finding(result, line) for line in result.lines))]
    seeds = min(each.quality.count for line in result.lines for each in line.results)
    bars = "Error bars: one standard deviation over seeds." if seeds > 1 else "Points with one seed have no error bar."
    blocks += [PlotFigure(_plot(result, colours), bars, 360), _table(result)]
    return Section(
        f"Sensitivity: {result.setting}",
        blocks,
        f"{measure_title(result.measure)} against {result.setting}, means over seeds.",
    )


def _finding(result: Sensitivity, line: SensitivityLine) -> str:
    best = next(each for each in line.results if each.value == line.best)
    sentence = f"{line.name} is best with {result.setting} = {line.best:g} ({best.quality})"
    if line.enough < line.best:
        sentence += f"; {line.enough:g} comes within {result.tolerance:.0%} of that"
    return sentence + "."


def _plot(result: Sensitivity, colours: Colours | None) -> Lines:
    colours = colours or Colours(line.name for line in result.lines)
    series = []
    for line in result.lines:
        several = any(each.quality.std is not None for each in line.results)
        bars = [each.quality.error_bar for each in line.results] if several else []
        means = [(each.value, each.quality.mean) for each in line.results]
        series.append(Series(line.name, means, bars, series_class(colours[line.name])))
    values = [each.value for line in result.lines for each in line.results]
    wide = min(values) > 0 and max(values) / min(values) >= WIDE
    return Lines(series, result.setting, measure_title(result.measure), log_x=wide, label_points=True)


def _table(result: Sensitivity) -> Table:
    values = sorted({each.value for line in result.lines for each in line.results})
    columns = [Column(result.setting.capitalize())]
    for line in result.lines:
        columns += [Column(line.name, ".3f", "high"), Column("std", ".3f", help=f"Over the seeds of {line.name}")]
    found = [{each.value: each.quality for each in line.results} for line in result.lines]
    rows = []
    for value in values:
        spreads = [qualities.get(value) for qualities in found]
        numbers = [number for each in spreads for number in ((each.mean, each.std) if each else (None, None))]
        rows.append(TableRow([f"{value:g}", *numbers]))
    return Table(columns, rows, "The best value of each column is highlighted.")
