"""`limbeck recipes`: the recipes that ship with limbeck, one line each."""

from __future__ import annotations

import typer


def register(app: typer.Typer) -> None:
    @app.command()
    def recipes(
        as_json: bool = typer.Option(False, "--json", help="Print JSON."),
        schema: bool = typer.Option(False, "--schema", help="Print the JSON schema of a recipe, for your editor."),
        keys: bool = typer.Option(False, "--keys", help="Print all keys of a recipe with their meaning, as Markdown."),
    ) -> None:
        """List the recipes that come with limbeck."""
        from limbeck.printable import json_text

        if schema or keys:
            from limbeck.recipe.schema import keys_page, recipe_schema

            print(json_text(recipe_schema()) if schema else keys_page(), end="\n" if schema else "")
            return
        from limbeck import api

        found = api.recipes()
        if as_json:
            print(json_text(found))
            return
        width = max(map(len, found))
        for name, description in found.items():
            print(f"{name:<{width}}  {description}")
