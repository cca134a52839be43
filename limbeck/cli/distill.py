"""`limbeck distill`: a recipe from start to report."""

from __future__ import annotations

from pathlib import Path

import typer

from limbeck.cli.options import DEVICE, REPORT_TO


def register(app: typer.Typer) -> None:
    @app.command()
    def distill(
        recipe: str = typer.Argument(help="A recipe file, or the name of a shipped recipe (`limbeck recipes`)."),
        out: Path = typer.Option(None, "--out", help="Run directory; runs/NAME by default."),
        override: list[str] = typer.Option([], "--set", help="Change a value, e.g. --set stages.0.steps=100."),
        report_to: list[str] = REPORT_TO,
        device: str = DEVICE,
        as_json: bool = typer.Option(False, "--json", help="Print the result as JSON."),
    ) -> None:
        """Distil a teacher into a student. If it is killed, run the same command again to resume."""
        from limbeck.cli.early import require_recipe

        require_recipe(recipe, override)
        from limbeck import api
        from limbeck.cli.tables import print_warnings, results_table
        from limbeck.console import out as console
        from limbeck.printable import json_text
        from limbeck.runs.results import rows_as_json
        from limbeck.training.processes import is_main

        result = api.distill(recipe, out, override, progress=True)
        if not is_main():
            return
        if as_json:
            found = {"folder": str(result.folder), "seconds": result.seconds, "rows": rows_as_json(result.rows)}
            found["warnings"] = result.warnings
            print(json_text(found))
            return
        if result.rows:
            console.print(results_table(result.rows, console.width))
            print_warnings(result.warnings)
        console.print(f"\nstudent  {result.folder / 'student'}\nreport   {result.report}", highlight=False)
