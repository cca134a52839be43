"""`limbeck report`: make a run's report again."""

from __future__ import annotations

import json
from pathlib import Path

import typer


def register(app: typer.Typer) -> None:
    @app.command()
    def report(
        run_dir: Path = typer.Argument(help="A run directory."),
        as_json: bool = typer.Option(False, "--json", help="Print JSON."),
    ) -> None:
        """Write report.html of a run directory anew."""
        from limbeck.report.run import run_report

        path = run_report(run_dir)
        print(json.dumps({"report": str(path)}) if as_json else path)
