"""`limbeck report`: write a run's report.html again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperCommand

from limbeck.cli.options import DEVICE


class ListsAnalyses(TyperCommand):
    """Lists the analyses in the help, including those of plugins, and imports them only then."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        from limbeck.report.analyses.registry import requested

        super().format_options(ctx, formatter)
        with formatter.section("Analyses"):
            formatter.write_dl([(name, found.about) for name, found in requested().items()])


def register(app: typer.Typer) -> None:
    @app.command(cls=ListsAnalyses)
    def report(
        run_dir: Path = typer.Argument(help="Folder that `limbeck distill` or `limbeck sweep` wrote."),
        add: list[str] = typer.Option([], "--add", help="Add an analysis to the run; the names are below."),
        set_: list[str] = typer.Option(
            [],
            "--set",
            help="With --add rank: evaluation.rank_queries=200, ...rank_documents=400; with --add attention_maps: "
            "evaluation.attention_layer=0.",
        ),
        device: str = DEVICE,
        as_json: bool = typer.Option(False, "--json", help="Print JSON."),
    ) -> None:
        """Write a run's report.html again, from the files of the run."""
        from limbeck.cli.early import require_run

        require_run(run_dir)
        from limbeck.report.run import run_report

        if add or set_:
            from limbeck.console import reporter
            from limbeck.progress import reporting
            from limbeck.runs.add_analyses import add_analyses

            with reporting(reporter()):
                add_analyses(run_dir, add, set_)
        path = run_report(run_dir)
        print(json.dumps({"report": str(path)}) if as_json else path)
