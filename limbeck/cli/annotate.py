"""`limbeck annotate`: teacher scores to disk, resumable."""

from __future__ import annotations

import json
from pathlib import Path

import typer

SHAPES = ("trec", "sentence-transformers", "pylate", "flagembedding")


def register(app: typer.Typer) -> None:
    @app.command()
    def annotate(
        teacher: str = typer.Argument(help="A model's folder or hub name."),
        data: str = typer.Argument(help="A BEIR folder, MS MARCO files, a hub name, ... or pydocs."),
        out: Path = typer.Option(..., "--out", help="Directory for the scores; run it again to go on or to add."),
        split: str = typer.Option("train", help="Whose queries: a split, or `all` for every query, judged or not."),
        queries: Path = typer.Option(None, help="A file of further queries without labels (jsonl or tsv)."),
        candidates: str = typer.Option("bm25", help="bm25, given (by the data), or a TREC run file."),
        depth: int = typer.Option(100, min=1, help="Candidates per query; judged documents are scored besides."),
        revision: str = typer.Option(None, help="The teacher's revision on the hub."),
        batch_size: int = typer.Option(32, min=1),
        bf16: bool = typer.Option(False, "--bf16", help="Let the teacher's transformer compute in bfloat16."),
        top: int = typer.Option(None, min=1, help="Export only the K best by teacher score; positives always stay."),
        export: Path = typer.Option(None, help="Also write the scores to this file."),
        shape: str = typer.Option(
            None, help="Of the export: trec (if not said), sentence-transformers, pylate or flagembedding."
        ),
        as_json: bool = typer.Option(False, "--json", help="Print the result as JSON."),
    ) -> None:
        """Score candidates with a teacher and keep its raw logits. Nothing is scored twice, whatever happens."""
        from limbeck.cli.early import require_data, require_model

        require_data(data, queries)
        require_model(teacher)
        from limbeck.files import require_writable

        require_writable(export)
        from limbeck.cli.console import reporter
        from limbeck.data import write_scores
        from limbeck.errors import LimbeckError, did_you_mean
        from limbeck.progress import reporting
        from limbeck.training.annotate import annotate_data, top_by_teacher

        if shape is not None and shape not in SHAPES:
            raise LimbeckError(f"unknown --shape {shape!r}; {did_you_mean(shape, list(SHAPES))}")
        if shape is not None and export is None:
            raise LimbeckError("--shape is that of an export; say where to with --export FILE")
        written = (shape or SHAPES[0]) if export is not None or top is not None else None
        with reporting(reporter()):
            done = annotate_data(
                teacher, data, out, split, queries, candidates, depth, revision, batch_size, bf16, written
            )
            if written is not None:
                run = done.store.to_run()
                run = top_by_teacher(run, done.judged, top) if top is not None else run
                write_scores(run, export or out / "top.trec", written, done.data)
        found = {"out": str(out), "queries": done.queries, "pairs": len(done.store), "scored_now": done.scored}
        if as_json:
            print(json.dumps(found, indent=2))
        else:
            print(f"{out}: {len(done.store):,} scores, {done.scored:,} of them new, for {done.queries:,} queries")
