"""A run's rows as a table for the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.table import Table

if TYPE_CHECKING:
    from limbeck.training.results import Row


def results_table(rows: list[Row]) -> Table:
    """Quality beside speed and size."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("model", no_wrap=True)
    measures = list(rows[0].measures)
    headings = [*measures, "kept", "ms/query", "pairs/s", "size", "speed-up"]
    compared = next((row.significance["against"] for row in rows if row.significance), None)
    if compared is not None:
        headings += [f"against {compared}"]
    for heading in headings:
        table.add_column(heading, justify="right")
    for row in rows:
        cells = [f"{row.measures[name]:.3f}" for name in measures]
        cells += [
            f"{row.kept:.0%}" if row.kept is not None else "",
            f"{row.ms_per_query:,.1f}" if row.ms_per_query is not None else "",
            f"{row.pairs_per_second:,.0f}" if row.pairs_per_second is not None else "",
            f"{row.size_mb:,.0f} MB" if row.size_mb is not None else "",
            f"{row.speedup:,.0f}x" if row.speedup is not None else "",
        ]
        if compared is not None:
            cells.append(_significance(row))
        table.add_row(row.name, *cells, style="bold" if row.kind == "student" else None)
    return table


def _significance(row: Row) -> str:
    if row.significance is None:
        return ""
    return f"{row.significance['difference']:+.3f} (p={row.significance['p']:.2f})"
