"""`limbeck runtimes`: how fast a model is in each runtime on this machine, and which one `--runtime auto` uses."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from rich.table import Table

    from limbeck.runtimes.auto import Choice
    from limbeck.runtimes.measure import Measured


def register(app: typer.Typer) -> None:
    @app.command()
    def runtimes(
        model: str = typer.Argument(help="A model of any kind: a folder, a hub name or a run directory."),
        data: str = typer.Argument(
            None, help="Measure on texts of this data set; by default on docstrings of this Python."
        ),
        threads: str = typer.Option(
            None,
            help="Numbers of threads to measure with besides all, which the choice is for, e.g. 1,4; by default 1.",
        ),
        as_json: bool = typer.Option(False, "--json", help="Print the result as JSON."),
    ) -> None:
        """Measure a model in every runtime that is installed. `--runtime auto` of other commands uses the result."""
        from limbeck.cli.early import require_data, require_model

        counts = _counts(threads)
        require_model(model)
        require_data(data)
        from limbeck import api
        from limbeck.console import out
        from limbeck.runtimes.choice import RUNTIMES, missing_package
        from limbeck.runtimes.gate import CLOSENESS, LOSS

        found = api.measure_runtimes(model, data, threads=counts, progress=True)
        if as_json:
            print(json.dumps(_facts(found), indent=2))
            return
        out.print(_table(found))
        for runtime in RUNTIMES:
            missing = missing_package(runtime)
            if missing is not None:
                print(f"{runtime}: {missing} is not installed")
        print(f"measured on texts of {found.source}; closeness is the mean cosine, or the correlation, to torch")
        if found.rows[0].padding is not None:
            print(f"padding: {found.rows[0].padding:.1%} of the tokens in batches")
        if found.judged is not None:
            print(f"nDCG@10: {found.judged}; a runtime may lose {LOSS:.1%} of torch's")
        else:
            print(f"no judged queries, so a runtime needs a closeness of {CLOSENESS}")
        count = f"{found.threads} thread{'s' if found.threads > 1 else ''}"
        print(f"--runtime auto on {count}: {found.single} for single texts, {found.batch} for batches")


def _counts(text: str | None) -> list[int] | None:
    from limbeck.errors import LimbeckError

    if text is None:
        return None
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdigit() and int(part) > 0 for part in parts):
        raise LimbeckError(f"--threads {text}: needs numbers of threads, at least 1, e.g. 1,4")
    return sorted({int(part) for part in parts})


def _facts(found: Choice) -> dict[str, Any]:
    """The choice, with loss and verdict of each row."""
    rows = [{**asdict(row), "lost": found.lost(row), "verdict": _verdict(found, row)} for row in found.rows]
    return {**asdict(found), "rows": rows}


def _verdict(found: Choice, row: Measured) -> str:
    return "kept" if found.keeps(row) else "below the gate"


def _table(found: Choice) -> Table:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("runtime")
    for heading in ("threads", "ms/text", "texts/s", "closeness", *(["nDCG@10", "lost"] if found.judged else [])):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("quality", no_wrap=True)
    for row in found.rows:
        loss = found.lost(row)
        gain = ["" if row.ndcg is None else f"{row.ndcg:.4f}", "" if loss is None else f"{loss:.1%}"]
        cells = [f"{row.single_ms:.2f}", f"{row.per_second:,.0f}", f"{row.closeness:.4f}"]
        quality = [*(gain if found.judged else []), _verdict(found, row)]
        table.add_row(row.runtime, str(row.threads), *cells, *quality)
    return table
