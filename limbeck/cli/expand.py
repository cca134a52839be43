"""`limbeck expand`: doc2query, resumable."""

from __future__ import annotations

import json
from pathlib import Path

import typer

from limbeck.cli.options import DEVICE


def register(app: typer.Typer) -> None:
    @app.command()
    def expand(
        data: str = typer.Argument(help="A BEIR folder, MS MARCO files, a hub name, ... or pydocs."),
        model: str = typer.Option(..., "--model", help="A seq2seq model that writes queries: folder or hub name."),
        out: Path = typer.Option(..., "--out", help="Directory for the expanded data; run it again to resume."),
        per_document: int = typer.Option(5, min=1, help="Queries to generate for each document."),
        batch_size: int = typer.Option(8, min=1, help="Documents per batch; it does not change the queries."),
        max_length: int = typer.Option(64, min=1, help="Maximum tokens of a query."),
        document_length: int = typer.Option(512, min=1, help="Maximum tokens of a document."),
        top_k: int = typer.Option(10, min=1, help="Tokens to choose from at each step; 1 takes the likeliest."),
        seed: int = typer.Option(0),
        teacher: str = typer.Option(
            None, "--filter", help="A matcher that scores the queries; only the best are kept."
        ),
        keep: float = typer.Option(None, help="The share of queries that --filter keeps; 0.7 by default."),
        device: str = DEVICE,
        as_json: bool = typer.Option(False, "--json", help="Print the result as JSON."),
    ) -> None:
        """Append to each document queries that it might answer, for sparse search. It never generates a query twice."""
        from limbeck.cli.early import require_data, require_model

        require_data(data)
        require_model(model, teacher)
        from limbeck.console import reporter
        from limbeck.progress import reporting
        from limbeck.search.doc2query import Sampling
        from limbeck.search.expand import expand_data

        how = Sampling(per_document, top_k, max_length, document_length, seed)
        with reporting(reporter()):
            done = expand_data(data, model, out, how, batch_size, teacher, keep)
        if as_json:
            print(json.dumps({**vars(done), "out": str(done.out)}, indent=2))
        else:
            now = f"queries of {done.generated:,} documents are new"
            print(f"{done.out}: {done.kept:,} queries behind {done.documents:,} documents; {now}")
