"""`limbeck tune`: find the weight of the sparse scores in a hybrid search, on held-out queries."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from limbeck.cli.options import DEVICE

if TYPE_CHECKING:
    from rich.table import Table

    from limbeck.evaluation.tune import Tuning
    from limbeck.evaluation.tune_index import TunedIndex

BAR = 24  # characters of the longest bar


def register(app: typer.Typer) -> None:
    @app.command()
    def tune(
        index: Path = typer.Argument(help="Folder that `limbeck index` wrote; the best alpha is saved there."),
        data: str = typer.Argument(help="Judged queries over the same documents: a BEIR folder, a hub name, ..."),
        split: str = typer.Option(None, help="Split with the queries; dev by default, or train if there is no dev."),
        measure: str = typer.Option("ndcg@10", help="The measure to optimise."),
        alphas: str = typer.Option(
            "auto", help="Comma-separated weights to try, or auto: a grid, refined around the best."
        ),
        limit: int = typer.Option(6000, min=2, help="Tune on at most this many queries, drawn at random."),
        milvus: str = typer.Option(None, help="Address of the Milvus with the index's vectors, if you trust it."),
        write: bool = typer.Option(
            None,
            "--write/--no-write",
            help="Always or never save alpha; by default only if it beats reciprocal rank fusion.",
        ),
        out: Path = typer.Option(None, "--out", help="Also write the curve as an HTML page."),
        device: str = DEVICE,
        as_json: bool = typer.Option(False, "--json", help="Print the result as JSON."),
    ) -> None:
        """Find alpha in score = alpha * sparse + dense, and show the quality of every alpha."""
        from limbeck.cli.early import require_data, require_index

        require_index(index)
        require_data(data)
        from limbeck.files import require_writable

        require_writable(out)
        from limbeck.console import out as console
        from limbeck.console import reporter
        from limbeck.evaluation.tune_index import tune_index
        from limbeck.files import refuse_overwriting
        from limbeck.progress import reporting
        from limbeck.report.fusion import finding, fusion_report
        from limbeck.search.milvus_address import trust

        if milvus is not None:
            trust(milvus)
        refuse_overwriting(out, index, data)
        with reporting(reporter()):
            found = tune_index(index, data, split, measure, _numbers(alphas), limit, write)
        page = fusion_report(found.tuning, str(index), found.data, found.split, out) if out is not None else None
        if as_json:
            facts = {"index": str(index), "split": found.split, "written": found.written, **found.tuning.as_json()}
            print(json.dumps({**facts, "report": str(page) if page else None}, indent=2))
            return
        console.print(_curve(found.tuning))
        console.print(f"\n{finding(found.tuning)}", highlight=False, markup=False)
        console.print(_consequence(index, found), highlight=False, markup=False)
        if page:
            console.print(f"report  {page}", highlight=False, markup=False)


def _consequence(index: Path, found: TunedIndex) -> str:
    """Which fusion the index uses from now on, and why."""
    tuning = found.tuning
    kept = "reciprocal rank fusion" if found.before is None else f"alpha {found.before:g}"
    doubt = f"{tuning.queries:,} queries do not show that alpha {tuning.alpha:g} is better than reciprocal rank fusion"
    if found.written:
        now = f"{index} now has alpha {tuning.alpha:g} instead of {kept}"
        return f"{now} ({tuning.queries:,} queries)." if tuning.beats_rrf else f"{now}, though {doubt}."
    if tuning.beats_rrf:
        return f"{index} keeps {kept}."
    remedy = f"--write saves it in the index anyway, `limbeck search --alpha {tuning.alpha:g}` tries it"
    return f"{index} keeps {kept}: {doubt}; {remedy}."


def _numbers(text: str) -> list[float] | None:
    from limbeck.errors import LimbeckError

    if text == "auto":
        return None
    try:
        return [float(part) for part in text.split(",")]
    except ValueError as error:
        raise LimbeckError(f"--alphas {text!r} is not a list of numbers; write e.g. 0,0.05,0.1, or auto") from error


def _curve(found: Tuning) -> Table:
    from rich.table import Table

    rows = [("dense alone", found.dense), *((f"{alpha:g}", value) for alpha, value in found.curve)]
    rows += [("sparse alone", found.sparse), ("reciprocal ranks", found.rrf)]
    rows.append(("hybrid, cross-fitted", found.comparison.system))  # the sentence below compares this row
    low, high = min(value for _, value in rows), max(value for _, value in rows)
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("alpha", no_wrap=True)
    table.add_column(found.measure, justify="right")
    table.add_column(f"from {low:.3f} to {high:.3f}", no_wrap=True)
    for name, value in rows:
        bar = "█" * round(BAR * (value - low) / (high - low)) if high > low else ""
        table.add_row(name, f"{value:.4f}", bar, style="bold" if name == f"{found.alpha:g}" else None)
    return table
