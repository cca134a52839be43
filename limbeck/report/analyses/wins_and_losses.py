"""The queries on which one model beats another and those on which it loses. A mean hides both."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from limbeck.data.dataset import RankingData
from limbeck.errors import LimbeckError
from limbeck.report.analyses.base import Result
from limbeck.report.analyses.measured_run import MeasuredModel, MeasuredRun
from limbeck.report.analyses.registry import Analysis, analysis
from limbeck.report.blocks import Block, Column, Figures, PlotFigure, Section, Table, TableRow, Text
from limbeck.report.colours import Colours
from limbeck.report.formatting import cut, measure_title, p_value, signed
from limbeck.report.plots import Bars

if TYPE_CHECKING:
    from limbeck.evaluation.ranking_result import RankingResult

LONGEST_QUERY = 80
MOST_BARS = 240


class QueryDifference(Result):
    """The quality of both models on one query."""

    query_id: str
    query: str
    first: float
    second: float

    @property
    def difference(self) -> float:
        return self.first - self.second


@analysis
class WinsAndLosses(Analysis):
    """The first model against the second on one measure; positive differences favour the first."""

    name = "wins"
    title = "Wins and losses"
    about = "the queries on which one model beats another"
    place = 70
    by_default = True

    names: tuple[str, str]
    measure: str
    means: tuple[float, float]
    won: int
    tied: int
    lost: int
    low: float  # end of the 95% interval of the mean difference
    high: float
    p: float  # randomisation test
    differences: tuple[float, ...]  # of all queries, descending
    gains: tuple[QueryDifference, ...]  # the largest first
    losses: tuple[QueryDifference, ...]  # the largest first

    @classmethod
    def of(cls, run: MeasuredRun) -> WinsAndLosses:
        """The best student against its rival, with the p-value of the run's table if it has one."""
        best, rival = run.best_student, _rival(run)
        found = wins_and_losses(best.result, rival.result, next(iter(best.measures)), run.data, (best.name, rival.name))
        test = best.significance
        corrected = test["p_holm"] if test is not None and test["against"] == rival.name else None
        return found if corrected is None else found.model_copy(update={"p": corrected})

    def section(self, colours: Colours) -> Section:
        return wins_and_losses_section(self)


def _rival(run: MeasuredRun) -> MeasuredModel:
    """The student that the others are tested against. If that is the best student, or there is none: the next best
    student, or for a single student the first other model.
    """
    best = run.best_student
    against = next((model.significance["against"] for model in run.students if model.significance), None)
    ordered = sorted(run.students, key=lambda model: -model.quality)
    rivals = [model for model in (*ordered, *run.models) if model is not best]
    found = next((model for model in rivals if model.name == against), None) or next(iter(rivals), None)
    if found is None:
        raise LimbeckError("there is only one model; add a teacher or a baseline")
    return found


def wins_and_losses(
    result_a: RankingResult,
    result_b: RankingResult,
    measure: str,
    data: RankingData,
    names: tuple[str, str] = ("A", "B"),
    count: int = 5,
) -> WinsAndLosses:
    """Queries that A wins, ties and loses against B, and the `count` largest gains and losses with their texts.

    Both results must have the same judged queries and contain the measure.
    """
    from limbeck.evaluation.significance import compare_rankings  # imports scipy, which the help does not need

    if count < 1:
        raise LimbeckError(f"{count} queries are too few; ask for 1 or more")
    comparison = compare_rankings(result_a, result_b, measure)
    won, tied, lost = comparison.record or (0, 0, 0)
    first, second = (result.per_query[comparison.measure] for result in (result_a, result_b))
    order = np.argsort(second - first, kind="stable")  # the largest gain first; ties by the smaller id

    def shown(places: Sequence[int]) -> tuple[QueryDifference, ...]:
        ids = [result_a.query_ids[place] for place in places]
        return tuple(
            QueryDifference(query_id=key, query=_text(data, key), first=float(first[at]), second=float(second[at]))
            for key, at in zip(ids, places, strict=True)
        )

    return WinsAndLosses(
        names=names,
        measure=comparison.measure,
        means=(comparison.system, comparison.baseline),
        won=won,
        tied=tied,
        lost=lost,
        low=comparison.low,
        high=comparison.high,
        p=comparison.p_values["randomisation"],
        differences=tuple((first - second)[order].tolist()),
        gains=shown(order[: min(count, won)].tolist()),
        losses=shown(order[::-1][: min(count, lost)].tolist()),
    )


def _text(data: RankingData, query: str) -> str:
    return " ".join(data.queries[query].split())


def wins_and_losses_section(result: WinsAndLosses) -> Section:
    """The counts, all differences as bars, and the queries at both ends."""
    first, second = result.names
    title = measure_title(result.measure)
    queries = f"of {len(result.differences):,} queries"
    tiles = [
        (f"{result.won:,}", "won", queries),
        (f"{result.tied:,}", "tied", queries),
        (f"{result.lost:,}", "lost", queries),
    ]
    blocks: list[Block] = [Text(_finding(result)), Figures(tiles), _bars(result)]
    if result.gains:
        blocks.append(_table(result, result.gains, f"The largest gains of {first} over {second} in {title}."))
    if result.losses:
        blocks.append(_table(result, result.losses, f"Its largest losses against {second}."))
    return Section(
        f"{first} against {second}", blocks, f"{title} of each query: that of {first} minus that of {second}."
    )


def _finding(result: WinsAndLosses) -> str:
    mean = result.means[0] - result.means[1]
    verdict = "" if result.p < 0.05 else " That may be luck."
    return (
        f"{result.names[0]} wins {result.won:,} queries, ties {result.tied:,} and loses {result.lost:,}. Mean "
        f"difference {signed(mean, 3)} (95% interval {signed(result.low, 3)} to {signed(result.high, 3)}, "
        f"p\u00a0{p_value(result.p)}).{verdict}"
    )


def _bars(result: WinsAndLosses) -> PlotFigure:
    """About MOST_BARS bars: means of neighbours in the sorted order; the width of a bar is its number of queries.

    Wins, ties and losses never share a bar, so that the total widths show the counts.
    """
    values = np.array(result.differences)
    sizes = [len(part) for part in np.array_split(values, min(len(values), MOST_BARS))]
    signs = np.flatnonzero(np.diff(np.sign(values))) + 1
    parts = np.split(values, np.union1d(np.cumsum(sizes)[:-1], signs).astype(int))
    means = [float(part.mean()) for part in parts]
    hints = [
        signed(mean, 3) + (f"\n{len(part)} queries" if len(part) > 1 else "")
        for mean, part in zip(means, parts, strict=True)
    ]
    caption = "All queries, sorted by their difference."
    if len(parts) < len(values):
        caption += " Neighbouring queries share a bar, which shows their mean; its width is their number."
    widths = [float(len(part)) for part in parts]
    plot = Bars(means, hints, "queries", f"difference in {measure_title(result.measure)}", widths)
    return PlotFigure(plot, caption, height=280)


def _table(result: WinsAndLosses, rows: Sequence[QueryDifference], caption: str) -> Table:
    first, second = result.names
    columns = [Column("Query"), Column(first, ".3f"), Column(second, ".3f"), Column("Difference", "+.3f")]
    cells = [TableRow([cut(each.query, LONGEST_QUERY), each.first, each.second, each.difference]) for each in rows]
    return Table(columns, cells, caption)
