"""`limbeck sweep`: a grid of runs, several seeds, one table."""

from __future__ import annotations

from pathlib import Path

import typer

from limbeck.cli.options import DEVICE


def register(app: typer.Typer) -> None:
    @app.command()
    def sweep(
        recipe: str = typer.Argument(help="A recipe file, or the name of one that ships (`limbeck recipes`)."),
        over: list[str] = typer.Option(
            [], "--over", help="KEY=A,B,C: the values a key takes; `objective` is the last stage's. Repeat for a grid."
        ),
        tune: list[str] = typer.Option(
            [], "--tune", help="KEY=A,B,C: the value that is best on dev is taken, for every place in the grid anew."
        ),
        seeds: int = typer.Option(1, "--seeds", help="Students trained for each place in the grid."),
        against: str = typer.Option(None, "--against", help="The row to test others against; the first by default."),
        out: Path = typer.Option(None, "--out", help="Directory; runs/NAME-sweep by default."),
        override: list[str] = typer.Option([], "--set", help="Change a value for all, e.g. --set stages.0.steps=100."),
        drop_students: bool = typer.Option(False, "--drop-students", help="Keep the best student's weights only."),
        device: str = DEVICE,
        as_json: bool = typer.Option(False, "--json", help="Print the result as JSON."),
    ) -> None:
        """Run a recipe over a grid of settings. Cut short or given more values or seeds, it does only what is new."""
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
                console.print("\nMeans over seeds with their standard deviation; p is Holm's.", style="dim")
            console.print(f"\nbest on dev  {result.folder / 'student'}\nreport       {result.report}", highlight=False)
            for line in failed:
                console.print(f"failed: {line}", highlight=False, markup=False)
        if failed:
            raise typer.Exit(1)
