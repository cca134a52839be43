"""`limbeck annotate`: teacher scores to disk, resumable."""

from __future__ import annotations

import json
from pathlib import Path

import typer

from limbeck.cli.options import DEVICE, RUNTIME


def register(app: typer.Typer) -> None:
    @app.command()
    def annotate(
        teacher: str = typer.Argument(help="A model's folder or hub name."),
        data: str = typer.Argument(help="A BEIR folder, MS MARCO files, a hub name, ... or pydocs."),
        out: Path = typer.Option(
            ..., "--out", help="Directory for the scores; run it again to resume or to add scores."
        ),
        split: str = typer.Option(
            "train", help="Which queries to score: a split, or `all` for every query, judged or not."
        ),
        queries: Path = typer.Option(None, help="A file with more queries, without labels (jsonl or tsv)."),
        candidates: str = typer.Option("bm25", help="bm25, given (by the data), or a TREC run file."),
        depth: int = typer.Option(100, min=1, help="Candidates per query; judged documents are always scored too."),
        revision: str = typer.Option(None, help="The teacher's revision on the hub."),
        batch_size: int = typer.Option(32, min=1),
        bf16: bool = typer.Option(False, "--bf16", help="Run the teacher's transformer in bfloat16."),
        top: int = typer.Option(None, min=1, help="Export only the K best by teacher score; positives always stay."),
        export: Path = typer.Option(None, help="Also write the scores to this file."),
        shape: str = typer.Option(
            None, help="Format of --export: trec (the default), sentence-transformers, pylate or flagembedding."
        ),
        device: str = DEVICE,
        runtime: str = RUNTIME,
        as_json: bool = typer.Option(False, "--json", help="Print the result as JSON."),
    ) -> None:
        """Score candidates with a teacher and store its raw logits. It never scores a pair twice."""
        from limbeck.cli.early import require_data, require_model

        require_data(data, queries)
        require_model(teacher)
        from limbeck.files import require_writable

        require_writable(export)
        from limbeck import api

        done = api.annotate(
            teacher, data, out, split=split, queries=queries, candidates=candidates, depth=depth, revision=revision,
            batch_size=batch_size, bf16=bf16, top=top, export=export, shape=shape, progress=True,
        )  # fmt: skip
        found = {"out": str(out), "queries": done.queries, "pairs": len(done.store), "scored_now": done.scored}
        if as_json:
            print(json.dumps(found, indent=2))
        else:
            print(f"{out}: {len(done.store):,} scores, {done.scored:,} of them new, for {done.queries:,} queries")
