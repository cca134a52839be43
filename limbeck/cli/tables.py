"""The rows of a run as a table for the terminal."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from limbeck.report.formatting import share

if TYPE_CHECKING:
    from limbeck.evaluation.search_speed import SearchTimings
    from limbeck.runs.results import ResultRow


def results_table(rows: list[ResultRow], width: int) -> Table:
    """Quality next to speed and size, without empty columns.

    Numbers are never truncated. If they do not fit next to the names, deviations and tests go to a second line.
    """
    wide, endless = _results(rows, " "), Console(width=10_000)
    fits = Measurement.get(endless, endless.options, wide).maximum <= width
    return wide if fits else _results(rows, "\n")


def print_warnings(lines: Sequence[str]) -> None:
    """Notes below a table."""
    from limbeck.console import out

    for line in lines:
        out.print(f"\nwarning: {line}", style="yellow", highlight=False, markup=False, soft_wrap=True)


def _results(rows: list[ResultRow], gap: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("model", overflow="fold", min_width=16)
    measures = list(dict.fromkeys(name for row in rows for name in row.measures))
    columns: dict[str, Callable[[ResultRow], str]] = {name: partial(_measure, name=name, gap=gap) for name in measures}
    columns |= {
        "kept": lambda row: share(row.kept) if row.kept is not None else "",
        "ms/query": lambda row: _ms(row.ms_per_query) if row.ms_per_query is not None else "",
        "pairs/s": lambda row: f"{row.pairs_per_second:,.0f}" if row.pairs_per_second is not None else "",
        "size": lambda row: f"{row.size_mb:,.0f} MB" if row.size_mb is not None else "",
        "bytes/doc": lambda row: f"{row.bytes_per_document:,.0f}" if row.bytes_per_document is not None else "",
        "speed-up": _speedup,
    }
    compared = next((row.significance["against"] for row in rows if row.significance), None)
    if compared is not None:
        columns[f"against {compared}"] = partial(_significance, gap=gap)
    filled = {heading: cells for heading, cell in columns.items() if any(cells := [cell(row) for row in rows])}
    for heading in filled:
        table.add_column(heading if gap == " " else _narrow(heading), justify="right", no_wrap=True)
    for row, *cells in zip(rows, *filled.values(), strict=True):
        table.add_row(_name(row), *cells, style="bold" if row.kind == "student" else None)
    return table


def _narrow(heading: str) -> str:
    """Break a heading into lines at its words, and long words again (recall / @100, ms/ / query)."""
    return "\n".join(
        re.sub(r"(?<=[/-])|(?=@)", "\n", word, count=1) if len(word) > 7 else word for word in heading.split()
    )


def timings_table(timings: SearchTimings) -> Table:
    """Milliseconds of every stage of a search, and the size in bytes of the parts that it reads."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("stage", no_wrap=True)
    for heading in ("ms p50", "ms p99", "bytes/passage"):
        table.add_column(heading, justify="right")
    for stage in timings.stages:
        size = timings.bytes_per_passage.get(stage.name)
        cells = f"{stage.p50_ms:.2f}", f"{stage.p99_ms:.2f}", f"{size:,.0f}" if size is not None else ""
        table.add_row(stage.name, *cells, style="bold" if stage.name == "total" else None)
    table.add_row("texts", "", "", f"{timings.bytes_per_passage['texts']:,.0f}")
    return table


def _name(row: ResultRow) -> Text:
    chosen = f" ({row.chosen})" if row.chosen else ""
    failed = f" [{len(row.failed)} failed]" if row.failed else ""
    return Text(f"{row.name}{chosen}{failed}")


def _measure(row: ResultRow, name: str, gap: str) -> str:
    if name not in row.measures:
        return ""
    spread = f"{gap}±{row.spread[name]:.3f}" if row.spread and name == next(iter(row.measures)) else ""
    return f"{row.measures[name]:.3f}{spread}"


def _ms(value: float) -> str:
    """Milliseconds with one digit after the point, or with two significant digits below 1."""
    return f"{value:,.1f}" if value >= 0.95 else f"{value:.2f}" if value >= 0.1 else f"{value:.3f}"


def _speedup(row: ResultRow) -> str:
    if row.speedup is None:
        return ""
    if row.speedup < 1 and row.kind == "student":
        return f"{row.speedup:.2g}x (slower)"
    return f"{row.speedup:,.0f}x" if row.speedup >= 10 else f"{row.speedup:.2g}x"


def _significance(row: ResultRow, gap: str) -> str:
    if row.significance is None:
        return ""
    test = row.significance
    return f"{test['difference']:+.3f}{gap}(p={test.get('p_holm', test['p']):.2g})"
