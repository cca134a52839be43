"""The report of `limbeck compress`: the front, what to do next, all models, and what students get wrong."""

from __future__ import annotations

from collections.abc import Callable

from limbeck.report.blocks import Block, Code, Figures, KeyValue, PlotFigure, Section, Text
from limbeck.report.examples import side_by_side
from limbeck.report.formatting import measure_title, share, three_digits, times
from limbeck.report.learning import learning_curves
from limbeck.report.plots import Point, Scatter
from limbeck.report.results import comparison
from limbeck.report.run_files import CompressionFacts, ModelRow, RunFiles

FEW = 8  # points that can all have their names


def the_front(run: RunFiles) -> Section | None:
    """Quality against milliseconds per query; a line joins the models that no other is better than."""
    facts, measure = run.metrics.compression, run.metrics.measure
    rows = [row for row in run.metrics.rows if row.ms_per_query]
    if facts is None or measure is None or not rows:
        return None
    named = {*facts.front, facts.recommended, *(row.name for row in rows if row.kind == "teacher"), "BM25"}
    points = [
        Point(
            row.ms_per_query or 0.0,
            row.measures[measure],
            f"{row.name} (recommended)" if row.name == facts.recommended else row.name,
            row.kind,
            _size(row),
            len(rows) <= FEW or row.name in named,
        )
        for row in rows
    ]
    path = _rising([(row.ms_per_query or 0.0, row.measures[measure]) for row in rows if row.name in facts.front])
    plot = Scatter(points, "milliseconds per query", measure_title(measure), log_x=True, path=path)
    caption = "Square: teacher. Diamond: baseline. Circle: student. Every point has its bytes per document in its hint."
    blocks: list[Block] = [Text(_headline(facts, rows, measure), lead=True), PlotFigure(plot, caption, height=430)]
    chosen = next((row for row in rows if row.name == facts.recommended), None)
    if chosen is not None:
        blocks.append(Figures(_figures(chosen, measure)))
    explanation = "Better is up and to the left; the time axis is logarithmic. The line joins the front."
    if facts.search_ms is not None:
        explanation += " BM25's time is that of its search; the others' is the time until the query's vector is there."
    return Section("The front", blocks, explanation)


def _rising(points: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """From left to right, the points that are higher than all before them.

    A front can have others: one that needs less time to search, or a smaller index.
    """
    path: list[tuple[float, float]] = []
    for ms, quality in sorted(points, key=lambda point: (point[0], -point[1])):
        if not path or quality > path[-1][1]:
            path.append((ms, quality))
    return path


def _size(row: ModelRow) -> str:
    return "" if row.bytes_per_document is None else f"{row.bytes_per_document:,.0f} bytes per document"


def _headline(facts: CompressionFacts, rows: list[ModelRow], measure: str) -> str:
    chosen = next((row for row in rows if row.name == facts.recommended), None)
    if chosen is None:
        return f"{facts.recommended} is recommended."
    kept = f"keeps {share(chosen.kept)} of the teacher's {measure_title(measure)}" if chosen.kept is not None else ""
    speed = f" at {times(chosen.speedup)} its speed" if chosen.speedup is not None else ""
    return f"Take {facts.recommended}: it {kept}{speed}."


def _figures(row: ModelRow, measure: str) -> list[tuple[str, str, str]]:
    tiles = [(f"{row.measures[measure]:.3f}", measure_title(measure), "")]
    if row.kept is not None:
        tiles.append((share(row.kept), "of the teacher's quality", ""))
    if row.ms_per_query is not None:
        tiles.append((f"{three_digits(row.ms_per_query)} ms", "per query", ""))
    if row.bytes_per_document is not None:
        tiles.append((f"{row.bytes_per_document:,.0f}", "bytes per document", "as float32"))
    return tiles


def what_next(run: RunFiles) -> Section | None:
    """The verdict, what was asked for, and the next commands."""
    facts = run.metrics.compression
    if facts is None:
        return None
    blocks: list[Block] = [Text(f"Warning: {line}.") for line in run.metrics.warnings]
    blocks += [Text("This run is not finished: more students were to be tried.")] if facts.unfinished else []
    blocks += [Code(facts.verdict.line), Text(f"{facts.verdict.level}: {facts.verdict.reason}.")]
    blocks += [Text(line) for line in facts.next]
    return Section("What to do next", blocks, f"Asked for: {facts.limits}.")


def all_models(run: RunFiles) -> Section | None:
    """The table, how it was timed, and the candidates that are not in it."""
    facts, section = run.metrics.compression, comparison(run)
    if facts is None or section is None:
        return section
    threads = "1 thread" if facts.threads == 1 else f"{facts.threads} threads"
    timing = f"{facts.timed_queries} single queries on {threads}, all models in turns; tokenising is included"
    how = [("timing", timing)]
    if facts.search_ms is not None:
        beside = f"takes {three_digits(facts.search_ms)} ms more per query, the same for every model with vectors"
        how.append(("search", f"an exact search of all document vectors {beside}"))
    how += list(facts.notes.items())
    return Section(section.title, [*section.blocks, KeyValue(how)], section.explanation)


def mistakes(run: RunFiles) -> Section | None:
    """Queries on which a student loses most against its teacher."""
    shown = [side_by_side(example) for example in run.mistakes if example.lists]
    if not shown:
        return None
    explanation = "The queries on which each student loses most. A mark says where the teacher ranks the same document."
    return Section("What students get wrong", shown, explanation)


compression_sections: list[Callable[[RunFiles], Section | None]] = [
    the_front,
    what_next,
    all_models,
    mistakes,
    learning_curves,
]
