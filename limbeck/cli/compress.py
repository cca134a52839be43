"""`limbeck compress`: students of one teacher along the whole range of cost, and the one to take."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from limbeck.cli.options import DEVICE, REPORT_TO

if TYPE_CHECKING:
    from rich.console import Console

    from limbeck.runs.compress.table import Compressed


def register(app: typer.Typer) -> None:
    @app.command()
    def compress(
        teacher: str = typer.Argument(
            help="A dual encoder, cross-encoder or ColBERT (a folder, a hub name, minilm), or scores of `annotate`."
        ),
        data: str = typer.Argument(
            help="Documents, and queries and labels if you have them: a BEIR folder, a corpus.jsonl, ... or pydocs."
        ),
        out: Path = typer.Option(..., "--out", help="Directory of the run; run the same command again to go on."),
        budget: list[str] = typer.Option(
            [], "--budget", help="What a student may cost: 2ms (per query), 1KB/doc; repeat it for both."
        ),
        keep: str = typer.Option(
            None, "--keep", help="Share of the teacher's quality to keep, e.g. 95% (the default without a budget)."
        ),
        minutes: float = typer.Option(30, "--minutes", help="Time for the whole run."),
        index: Path = typer.Option(None, "--index", help="Keep the document vectors of this index of the teacher."),
        vectors: Path = typer.Option(None, "--vectors", help="Keep the teacher's document vectors of this .npy file."),
        start: str = typer.Option(
            None, "--start", help="What students of a re-ranker, or of scores, start from; minilm by default."
        ),
        threads: int = typer.Option(1, "--threads", min=1, help="Threads that queries are timed on."),
        seed: int = typer.Option(0, "--seed", min=0, max=2**31 - 1),
        length: int = typer.Option(
            None, "--length", min=4, help="Tokens that the teacher reads of a text; as many as it can by default."
        ),
        question: list[str] = typer.Option(
            [], "--question", help="The report shows how teacher and student answer it; repeat it for more."
        ),
        fail_below: list[str] = typer.Option(
            [], "--fail-below", help="Exit with code 1 below this: win, marginal, kept=95% or ndcg@10=0.60."
        ),
        report_to: list[str] = REPORT_TO,
        device: str = DEVICE,
        as_json: bool = typer.Option(False, "--json", help="Print the result as JSON."),
    ) -> None:
        """Make cheaper students of a teacher: no recipe needed. Ends with a table, a recommendation and a verdict."""
        from limbeck.cli.early import require_data, require_model
        from limbeck.runs.compress.limits import Limits
        from limbeck.runs.compress.verdict import Required

        Limits.parse(budget, keep)
        required = Required.parse(fail_below)
        require_data(data)
        require_model(None if Path(teacher).expanduser().exists() else teacher)
        from limbeck import api
        from limbeck.console import err
        from limbeck.printable import json_text

        try:
            found = api.compress(
                teacher, data, out, budget=budget, keep=keep, minutes=minutes, index=index, vectors=vectors,
                start=start, threads=threads, seed=seed, length=length, questions=question, progress=True,
            )  # fmt: skip
        except KeyboardInterrupt:
            show_what_is_there(out)
            raise
        print(json_text(found.as_json())) if as_json else show(found)
        missed = required.missed(found.verdict, found.row)
        for line in missed:
            err.print(line, highlight=False, markup=False)
        if missed:
            raise typer.Exit(1)


def show(found: Compressed, console: Console | None = None) -> None:
    """The table, what became of the others, what to do next, and the verdict as the last line."""
    from limbeck.cli.tables import print_warnings, results_table
    from limbeck.console import out as usual

    out = console or usual
    out.print(results_table(found.rows, out.width))
    for name, note in found.notes.items():
        out.print(f"{name}: {note}", style="dim", highlight=False, markup=False, soft_wrap=True)
    print_warnings(found.warnings)
    out.print(f"\nfront        {'; '.join(found.front)}", highlight=False, markup=False, soft_wrap=True)
    out.print(f"recommended  {found.recommended}", highlight=False, markup=False, soft_wrap=True)
    for line in found.next_steps:
        out.print(f"             {line}", highlight=False, markup=False, soft_wrap=True)
    threads = "1 thread" if found.threads == 1 else f"{found.threads} threads"
    out.print(f"ms/query     single queries on {threads}, all models in turns", highlight=False)
    out.print(f"student      {found.folder / 'student'}\nreport       {found.report}", highlight=False, markup=False)
    out.print(str(found.verdict), highlight=False, markup=False, soft_wrap=True)


def show_what_is_there(folder: Path) -> None:
    """The table of an interrupted run, if a student has been measured."""
    from limbeck.console import err
    from limbeck.errors import LimbeckError
    from limbeck.runs.compress.table import read_compressed

    try:
        found = read_compressed(folder)
    except LimbeckError:
        return
    show(found, err)
    err.print("unfinished: more students were to be tried; the same command goes on", highlight=False)
