"""`limbeck report`: a run's report.html, anew."""

from __future__ import annotations

import json
from pathlib import Path

import typer

from limbeck.cli.options import DEVICE


def register(app: typer.Typer) -> None:
    @app.command()
    def report(
        run_dir: Path = typer.Argument(help="What `limbeck distill` or `limbeck sweep` wrote."),
        add: list[str] = typer.Option(
            [], "--add", help="Look into it further: scores, margins, rank, wins, disagreements, top_lists, snapshots."
        ),
        set_: list[str] = typer.Option(
            [],
            "--set",
            help="With --add rank, the size of its matrix: evaluation.rank_queries=200, ...rank_documents=400.",
        ),
        device: str = DEVICE,
        as_json: bool = typer.Option(False, "--json", help="Print JSON."),
    ) -> None:
        """Write a run's report.html anew, from what the run left behind."""
        from limbeck.cli.early import require_run

        require_run(run_dir)
        from limbeck.report.run import run_report

        if add or set_:
            from limbeck.console import reporter
            from limbeck.progress import reporting
            from limbeck.training.add_analyses import add_analyses

            with reporting(reporter()):
                add_analyses(run_dir, add, set_)
        path = run_report(run_dir)
        print(json.dumps({"report": str(path)}) if as_json else path)
