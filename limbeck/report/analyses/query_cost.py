"""Quality kept against the cost of a query: the time and the size of each query encoder (EmbedDistill Table 1).

Documents are encoded ahead, so a search pays for the encoding of the query only. The teacher is at 100%.
"""

from __future__ import annotations

from collections.abc import Sequence

from limbeck.errors import LimbeckError
from limbeck.report.analyses.base import Result
from limbeck.report.analyses.measured_run import MeasuredModel, MeasuredRun
from limbeck.report.analyses.registry import Analysis, analysis
from limbeck.report.blocks import Block, Cell, Column, PlotFigure, Section, Table, TableRow, Text
from limbeck.report.colours import Colours
from limbeck.report.formatting import measure_title, share, short_names, times
from limbeck.report.plots import Point, Scatter

SEARCH = "search "  # prefix of measures of a search of the whole corpus, if a run also re-ranks
AT_LEAST = 0.95  # of the teacher's quality: the cheapest encoder that keeps it is named


class EncoderCost(Result):
    """One model's query encoder."""

    name: str
    role: str
    quality: float
    kept: float  # share of the teacher's quality
    ms: float  # to encode one query by itself
    parameters: int


@analysis
class QueryCosts(Analysis):
    """The query encoders of a run."""

    name = "query_cost"
    title = "Quality kept against the cost of a query"
    about = "how much of the teacher's quality is kept, against the time and the size of the query encoder"
    place = 85

    measure: str
    teacher: str
    teacher_ms: float | None  # None if the teacher does not encode queries apart
    models: tuple[EncoderCost, ...]

    @classmethod
    def of(cls, run: MeasuredRun) -> QueryCosts:
        return query_costs(run.teacher, run.models)

    def section(self, colours: Colours) -> Section:
        return query_costs_section(self)


def query_costs(teacher: MeasuredModel, models: Sequence[MeasuredModel]) -> QueryCosts:
    """The share of the teacher's quality that each model keeps, in a search of the corpus if the teacher has one."""
    measure = next((name for name in teacher.measures if name.startswith(SEARCH)), next(iter(teacher.measures)))
    whole = teacher.measures[measure]
    if whole <= 0:
        raise LimbeckError(f"{teacher.name} has a {measure_title(measure)} of 0, so no share of it can be kept")
    found = [
        EncoderCost(
            name=model.name,
            role=model.role,
            quality=model.measures[measure],
            kept=model.measures[measure] / whole,
            ms=model.query_ms,
            parameters=model.query_parameters or 0,
        )
        for model in models
        if model.query_ms is not None and measure in model.measures
    ]
    if not any(model.role == "student" for model in found):
        raise LimbeckError("no student encodes a query by itself, or it was measured by an earlier version")
    return QueryCosts(measure=measure, teacher=teacher.name, teacher_ms=teacher.query_ms, models=tuple(found))


def query_costs_section(result: QueryCosts) -> Section:
    """Quality kept against milliseconds and against parameters, and the numbers."""
    names = short_names([model.name for model in result.models])
    axes = (
        ("milliseconds to encode a query", [model.ms for model in result.models]),
        ("million parameters of the query encoder", [model.parameters / 1e6 for model in result.models]),
    )
    title = f"% of {result.teacher}'s {measure_title(result.measure)}"
    blocks: list[Block] = [Text(_finding(result))]
    for axis, values in axes:
        points = [
            Point(value, 100 * model.kept, name, model.role, model.name)
            for value, model, name in zip(values, result.models, names, strict=True)
            if value > 0
        ]
        blocks.append(PlotFigure(Scatter(points, axis, title, log_x=True), height=380))
    columns = [
        Column("Model"),
        Column(measure_title(result.measure), ".3f", "high"),
        Column("Kept", ".1f", "high", "Share of the teacher's quality", "%"),
        Column("ms", ",.3f", "low", "To tokenise and encode one query, median"),
        Column("Times as fast", ",.1f", "high", "As the teacher, for the query alone", "×"),
        Column("Parameters, M", ",.2f", "low", "Of the query encoder, token table included"),
    ]
    rows = [TableRow(_cells(result, model), model.role, model.role == "student") for model in result.models]
    blocks.append(Table(columns, rows))
    return Section(
        result.title,
        blocks,
        "Documents are encoded ahead, so a search pays for the query alone. Better is up and to the left; both costs "
        "are on logarithmic axes.",
    )


def _cells(result: QueryCosts, model: EncoderCost) -> list[Cell]:
    faster = None if result.teacher_ms is None else result.teacher_ms / model.ms
    return [model.name, model.quality, 100 * model.kept, model.ms, faster, model.parameters / 1e6]


def _finding(result: QueryCosts) -> str:
    """The fastest student that keeps most of the quality; if none does, the best one."""
    students = [model for model in result.models if model.role == "student"]
    enough = [model for model in students if model.kept >= AT_LEAST]
    chosen = min(enough, key=lambda model: model.ms) if enough else max(students, key=lambda model: model.kept)
    verb = "keeps" if chosen.kept <= 1 else "reaches"
    told = f"{chosen.name} {verb} {share(chosen.kept)} of {result.teacher}'s {measure_title(result.measure)}"
    if result.teacher_ms is not None:
        told += f" and encodes a query {times(result.teacher_ms / chosen.ms)} as fast"
    if not enough:
        return f"{told}. No query encoder keeps {AT_LEAST:.0%}."
    return f"{told}: the fastest query encoder that keeps at least {AT_LEAST:.0%}."
