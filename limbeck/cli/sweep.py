"""`limbeck sweep`: a grid of runs, several seeds, one table."""

from __future__ import annotations

from pathlib import Path

import typer

from limbeck.cli.options import DEVICE, REPORT_TO


def register(app: typer.Typer) -> None:
    @app.command()
    def sweep(
        recipe: str = typer.Argument(help="A recipe file, or the name of a shipped recipe (`limbeck recipes`)."),
        over: list[str] = typer.Option(
            [],
            "--over",
            help="KEY=A,B,C: the values of a key; `objective` is that of the last stage. Repeat for a grid.",
        ),
        tune: list[str] = typer.Option(
            [], "--tune", help="KEY=A,B,C: takes the value that is best on dev, separately for every point of the grid."
        ),
        seeds: int = typer.Option(1, "--seeds", help="Seeds per point of the grid."),
        against: str = typer.Option(
            None, "--against", help="The row to compare the others with; the first by default."
        ),
        out: Path = typer.Option(None, "--out", help="Directory; runs/NAME-sweep by default."),
        override: list[str] = typer.Option(
            [], "--set", help="Change a value for all runs, e.g. --set stages.0.steps=100."
        ),
        drop_students: bool = typer.Option(False, "--drop-students", help="Keep only the best student's weights."),
        report_to: list[str] = REPORT_TO,
        device: str = DEVICE,
        as_json: bool = typer.Option(False, "--json", help="Print the result as JSON."),
    ) -> None:
        """Run a recipe over a grid of settings. Run it again to resume, or to add more values or seeds."""
        from limbeck.cli.early import require_recipe

        require_recipe(recipe, override, [*over, *tune])
        from limbeck import api
        from limbeck.cli.tables import print_warnings, results_table
        from limbeck.console import out as console
        from limbeck.printable import json_text
        from limbeck.runs.results import rows_as_json

        result = api.sweep(
            recipe, over, tune=tune, seeds=seeds, against=against, out=out, overrides=override,
            drop_students=drop_students, progress=True,
        )  # fmt: skip
        failed = [f"{row.name}: {text}" for row in result.rows for text in row.failed or []]
        if as_json:
            found = {"folder": str(result.folder), "seconds": result.seconds, "rows": rows_as_json(result.rows)}
            found["warnings"] = result.warnings
            print(json_text(found))
        else:
            console.print(results_table(result.rows, console.width))
            print_warnings(result.warnings)
            if seeds > 1:
                console.print(
                    "\nMeans over seeds with their standard deviation; p-values with Holm's correction.", style="dim"
                )
            console.print(f"\nbest on dev  {result.folder / 'student'}\nreport       {result.report}", highlight=False)
            for line in failed:
                console.print(f"failed: {line}", highlight=False, markup=False)
        if failed:
            raise typer.Exit(1)
