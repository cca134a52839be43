"""`limbeck pairs`: make a pair set from a ranking set, or more pairs for a pair set."""

from __future__ import annotations

import json
from pathlib import Path

import typer

from limbeck.cli.options import DEVICE


def register(app: typer.Typer) -> None:
    @app.command()
    def pairs(
        data: str = typer.Argument(help="A ranking set (a BEIR folder, MS MARCO files, ...), or a pair set."),
        out: Path = typer.Option(..., "--out", help="Folder for the pair files."),
        how: str = typer.Option(
            "q2p",
            help="q2p (one negative from the nearest 100 for each positive), neighbours, or judged (with grades).",
        ),
        model: str = typer.Option(None, help="A dual encoder that finds neighbours; BM25 by default."),
        below: float = typer.Option(
            None, help="With --how neighbours: neighbours with a lower similarity are negatives."
        ),
        hard: int = typer.Option(
            None, min=1, help="With --how neighbours: how many neighbours may become negatives; 30."
        ),
        near: int = typer.Option(
            None, min=1, help="With --how neighbours: how many neighbours go to the transfer set; 50."
        ),
        titles: bool = typer.Option(False, "--titles", help="Make triples: query, title, text."),
        seed: int = typer.Option(0),
        device: str = DEVICE,
        as_json: bool = typer.Option(False, "--json", help="Print the result as JSON."),
    ) -> None:
        """Make labelled pairs, and unlabelled pairs to distil on, from queries and judgements."""
        from limbeck.cli.early import require_data, require_model

        require_data(data)
        require_model(model)
        from limbeck.console import reporter
        from limbeck.progress import reporting
        from limbeck.training.pair_builders import build_pairs

        with reporting(reporter()):
            built = build_pairs(data, out, how, model, below, hard, near, seed, titles)
        if as_json:
            print(json.dumps({"out": str(out), **built.counts}, indent=2))
            return
        print(f"{out}: " + ", ".join(f"{count:,} {split}" for split, count in built.counts.items()) + " pairs")
        extra = f" --set data.unlabelled={out}/transfer.jsonl" if "transfer" in built.counts else ""
        labelled = out if len(built.counts) > 1 or not extra else data
        if titles:
            extra += " --set 'student.tokens=[4,4,8]'"
        if how == "judged":
            extra += " --set 'evaluation.measures=[pearson,spearman]'"
        print(f"next: limbeck distill dipair-laptop --set data.source={labelled}{extra}")
