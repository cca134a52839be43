"""`limbeck generate`: new queries near the ones you have, resumable."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from limbeck.cli.options import DEVICE

if TYPE_CHECKING:
    from limbeck.generation.generate import Generated


def register(app: typer.Typer) -> None:
    @app.command()
    def generate(
        data: str = typer.Argument(
            help="A data set, or a file of queries (.txt, .jsonl, .csv, .tsv, .parquet); for spans: of documents."
        ),
        out: Path = typer.Option(..., "--out", help="The .jsonl file to write; run it again to resume."),
        how: str = typer.Option(None, help="model, perturb, spans or sample; model if --model is given, else perturb."),
        model: str = typer.Option(None, help="A seq2seq model (BART, T5, ...): folder or hub name."),
        split: str = typer.Option(None, help="Split with the queries; train by default. dev and test are refused."),
        per_query: int = typer.Option(
            2, min=1, help="New queries for each query; with --how spans: for each document."
        ),
        noise: float = typer.Option(
            None,
            help="With --how model: standard deviation of the noise on encoder states, relative to their size; 0.3.",
        ),
        mask: float = typer.Option(None, help="With --how model: share of input tokens to mask; 0.1."),
        max_length: int = typer.Option(None, min=1, help="With --how model: maximum tokens of a new query; 64."),
        drop: float = typer.Option(None, help="With --how perturb: share of words to drop; 0.2."),
        swap: float = typer.Option(None, help="With --how perturb: share of words to swap; 0.2."),
        draw_from: str = typer.Option(
            None, "--from", help="With --how sample: a file of queries; by default the titles of the corpus."
        ),
        seed: int = typer.Option(0, help="Random seed."),
        batch_size: int = typer.Option(
            8, min=1, help="With --how model: queries per batch; it does not change the result."
        ),
        device: str = DEVICE,
        as_json: bool = typer.Option(False, "--json", help="Print the result as JSON."),
    ) -> None:
        """Write new queries without labels, to match embeddings: variants of your queries, or spans of documents."""
        from limbeck.cli.early import require_data, require_model

        require_data(data, draw_from)
        require_model(model)
        from limbeck.files import refuse_overwriting, require_writable

        refuse_overwriting(out, data, draw_from)
        require_writable(out)
        from limbeck import api

        done = api.generate(
            data, out, how=how, model=model, split=split, per_query=per_query, noise=noise, mask=mask,
            max_length=max_length, drop=drop, swap=swap, draw_from=draw_from, seed=seed, batch_size=batch_size,
            progress=True,
        )  # fmt: skip
        print(json.dumps({**vars(done), "out": str(done.out)}, indent=2) if as_json else described(done))


def described(done: Generated) -> str:
    """A summary in a few lines."""
    left = {"known already": done.known, "repeated": done.repeated, "empty": done.empty}
    dropped = ", ".join(f"{count:,} {why}" for why, count in left.items() if count)
    made = "queries drawn at random, for" if done.how == "sample" else "new queries from"
    lines = [f"{done.out}: {done.queries:,} {made} {done.sources:,} {done.noun}"]
    lines += [f"  left out: {dropped}"] if dropped else []
    if done.held_out:
        lines.append(f"  not used: {done.held_out:,} queries that a dev or test split has too")
    lines += [f"  {_short(source)} -> {_short(new)}" if source else f"  {_short(new)}" for source, new in done.examples]
    return "\n".join(lines)


def _short(text: str, most: int = 60) -> str:
    text = " ".join(text.split())
    return text if len(text) <= most else f"{text[: most - 3]}..."
