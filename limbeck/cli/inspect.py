"""`limbeck inspect`: which tokens of two texts look at each other."""

from __future__ import annotations

from pathlib import Path

import typer

from limbeck.cli.options import DEVICE


def register(app: typer.Typer) -> None:
    @app.command()
    def inspect(
        model: str = typer.Argument(help="A model's folder or hub name, or a run directory."),
        first: str = typer.Argument(help="The first text: a query, a premise, ..."),
        second: str = typer.Argument(help="The second text: a document, a hypothesis, ..."),
        teacher: str = typer.Option(None, help="A cross-encoder with the same tokenizer, to compare with."),
        layer: int = typer.Option(None, min=0, help="Layer of the model, from 0; the last by default."),
        out: Path = typer.Option(None, help="Write the maps as pictures to this HTML file."),
        device: str = DEVICE,
        as_json: bool = typer.Option(False, "--json", help="Print the maps as JSON."),
    ) -> None:
        """Show the attention between the tokens of two texts: a cross-encoder's own, or a virtual one of two towers."""
        from limbeck.cli.early import require_model
        from limbeck.files import refuse_overwriting, require_writable
        from limbeck.matchers.arguments import require_words

        require_words(first, second)
        require_model(model, teacher)
        refuse_overwriting(out, model, teacher)
        require_writable(out)
        from limbeck import api
        from limbeck.cli.token_maps import print_inspection
        from limbeck.console import out as console
        from limbeck.printable import json_text

        found = api.inspect(model, first, second, teacher=teacher, layer=layer, out=out)
        if as_json:
            print(json_text(found.as_json(), indent=None))
        else:
            print_inspection(console, found)
            if out is not None:
                print(out)
