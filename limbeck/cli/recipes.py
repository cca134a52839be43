"""`limbeck recipes`: what ships, one line each."""

from __future__ import annotations

import json

import typer


def register(app: typer.Typer) -> None:
    @app.command()
    def recipes(as_json: bool = typer.Option(False, "--json", help="Print JSON.")) -> None:
        """List the recipes that come with limbeck."""
        from limbeck.training.recipe_files import load_recipe, shipped

        found = {name: load_recipe(path).description for name, path in shipped().items()}
        if as_json:
            print(json.dumps(found, indent=2, ensure_ascii=False))
            return
        width = max(map(len, found))
        for name, description in found.items():
            print(f"{name:<{width}}  {description}")
