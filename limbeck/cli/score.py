"""`limbeck score`: score long lists of pairs, resumable."""

from __future__ import annotations

import json
from pathlib import Path

import typer

from limbeck.cli.options import DEVICE, RUNTIME


def register(app: typer.Typer) -> None:
    @app.command()
    def score(
        model: str = typer.Argument(help="A model of any kind: a folder, a hub name or a run directory."),
        pairs: Path = typer.Argument(
            None, help="Pairs as parquet, csv, tsv or jsonl; without it, all pairs of --left and --right."
        ),
        out: Path = typer.Option(
            ..., "--out", help="Folder for the scores; if it is killed, the same command resumes."
        ),
        left: str = typer.Option(None, help="Texts of the first side, by id: jsonl, tsv, csv or parquet."),
        right: str = typer.Option(None, help="Texts of the second side."),
        top_k: int = typer.Option(None, min=1, help="Keep only the K best for each left text."),
        head: str = typer.Option(
            "auto", help="How to compute scores: torch, onnx, the faster of both (auto), or int8."
        ),
        engine: str = typer.Option("local", help="Where to run: local (processes on this machine) or ray."),
        address: str = typer.Option(
            None, help="Address of a Ray cluster (host:port); without it, Ray starts on this machine."
        ),
        workers: int = typer.Option(
            None, min=1, help="Number of processes; by default one per core, or one with --device cuda."
        ),
        shard: int = typer.Option(None, min=1, help="Pairs per score file; 100,000 by default."),
        dtype: str = typer.Option("float32", help="How vectors are stored: float32, float16 or int8."),
        columns: str = typer.Option(
            None, help="Columns of the pair list to return: a,b,c, or all, or none; by default its ids or texts."
        ),
        store: Path = typer.Option(None, help="Folder to keep vectors in, for other lists of the same texts."),
        device: str = DEVICE,
        runtime: str = RUNTIME,
        as_json: bool = typer.Option(False, "--json", help="Print the result as JSON."),
    ) -> None:
        """Score pairs. Each distinct text is encoded once; after that a pair only costs the head."""
        from limbeck.cli.early import require_data, require_model, require_precision

        require_model(model)
        require_data(pairs, left, right)
        require_precision(dtype)
        from limbeck import api

        done = api.score(
            model, pairs, out, left=left, right=right, top_k=top_k, head=head, engine=engine, address=address,
            workers=workers, shard=shard, dtype=dtype, columns=columns, store=store, progress=True,
        )  # fmt: skip
        facts = {
            "out": str(out),
            "pairs": done.pairs,
            "scored_now": done.scored,
            "texts_encoded_now": done.encoded,
            "seconds": round(done.seconds, 3),
            "pairs_per_second": round(done.pairs_per_second, 1),
            "bytes": done.bytes,
        }
        if as_json:
            print(json.dumps(facts, indent=2))
            return
        print(f"{out}/scores: {done.pairs:,} pairs, {done.scored:,} scored now, {done.encoded:,} texts encoded now")
        if done.scored:
            print(f"{done.seconds:,.1f} s, {done.pairs_per_second:,.0f} pairs per second, {done.bytes / 1e6:,.1f} MB")
