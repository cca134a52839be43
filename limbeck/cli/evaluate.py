"""`limbeck evaluate`: quality, speed and size of one model, or of two compared; can fail a CI job."""

from __future__ import annotations

from pathlib import Path

import typer

from limbeck.cli.options import DEVICE, RUNTIME

SHORTEST = 3  # [CLS], a word piece, [SEP]


def _lengths(text: str | None) -> tuple[int, int] | None:
    from limbeck.errors import LimbeckError

    if text is None:
        return None
    numbers = [part.strip() for part in text.split(",")]
    if len(numbers) != 2 or not all(part.isdigit() and int(part) >= SHORTEST for part in numbers):
        raise LimbeckError(f"--lengths {text}: needs two numbers of tokens, at least {SHORTEST}, e.g. 16,64")
    return int(numbers[0]), int(numbers[1])


def register(app: typer.Typer) -> None:
    @app.command()
    def evaluate(
        model: str = typer.Argument(
            help="A model's folder or hub name, a run directory, an index, `bm25`, or a TREC run file."
        ),
        data: str = typer.Argument(help="A BEIR folder, a pair file, MS MARCO files, a hub name, ... or pydocs."),
        task: str = typer.Option(
            None, help="rerank, retrieve or pairs; by default the task that fits the data and the model."
        ),
        mode: str = typer.Option(None, help="How to search an index: dense, sparse or hybrid."),
        fusion: str = typer.Option(None, help="How a hybrid search joins both parts: interpolate (Eq. 7) or rrf."),
        alpha: float = typer.Option(None, help="Weight of the sparse scores in a hybrid search."),
        split: str = typer.Option("test"),
        against: str = typer.Option(
            None, help="A second model to compare with: paired significance test and confidence interval."
        ),
        against_mode: str = typer.Option(None, help="How to search the second index; --mode by default."),
        against_fusion: str = typer.Option(None, help="--fusion of the second index."),
        against_alpha: float = typer.Option(None, help="--alpha of the second index."),
        candidates: str = typer.Option(
            None,
            help="Candidates to re-rank: bm25 (the default), given, a TREC run; tokens: search by a ColBERT's tokens.",
        ),
        depth: int = typer.Option(100, min=1, help="Candidates per query, or documents to retrieve."),
        add_judged: bool = typer.Option(False, help="Add judged positives to the candidates."),
        measures: str = typer.Option(None, help="Comma-separated, e.g. ndcg@10,mrr@10,recall@100."),
        relevance_level: int = typer.Option(1, min=1, help="Lowest grade that counts as relevant; 2 for TREC DL."),
        lengths: str = typer.Option(
            None, help="Maximum tokens of query and document, if fewer than the model was made for: 16,64."
        ),
        head: str = typer.Option(
            None, help="Pairs only: score with this head of `limbeck score`: torch, onnx or int8."
        ),
        limit: int = typer.Option(None, min=1, help="Measure on this many queries or pairs, drawn with --seed."),
        seed: int = typer.Option(0, min=0, help="Seed for --limit."),
        store: Path = typer.Option(None, help="Folder to keep document vectors in and reuse them from."),
        milvus: str = typer.Option(None, help="Address of the Milvus with the index's vectors, if you trust it."),
        run: Path = typer.Option(None, help="Write the ranking to this TREC run file."),
        fail_below: list[str] = typer.Option([], help="Exit with code 1 if a measure is lower, e.g. ndcg@10=0.60."),
        device: str = DEVICE,
        runtime: str = RUNTIME,
        as_json: bool = typer.Option(False, "--json", help="Print the result as JSON."),
    ) -> None:
        """Measure a model on judged queries or labelled pairs."""
        from limbeck.cli.early import require_data, require_ranker
        from limbeck.evaluation.gate import failures, parse_gate
        from limbeck.files import refuse_overwriting, require_writable

        gates = [parse_gate(text) for text in fail_below]
        tokens = _lengths(lengths)
        require_data(data)
        require_ranker(model, against)
        refuse_overwriting(run, model, data, against, candidates)
        require_writable(run)
        from limbeck import api
        from limbeck.console import err
        from limbeck.printable import json_text
        from limbeck.search.milvus_address import trust

        if milvus is not None:
            trust(milvus)
        names = [name.strip() for name in measures.split(",")] if measures else None
        found = api.evaluate(
            model, data, task=task, mode=mode, fusion=fusion, alpha=alpha, split=split, against=against,
            against_mode=against_mode, against_fusion=against_fusion, against_alpha=against_alpha,
            candidates=candidates, depth=depth, add_judged=add_judged, measures=names,
            also=[gate.measure for gate in gates], relevance_level=relevance_level, lengths=tokens, head=head,
            limit=limit, seed=seed, store=store, run=run, progress=True,
        )  # fmt: skip
        print(json_text(found.as_json()) if as_json else found)
        missed = failures(gates, found.measures)
        for line in missed:
            err.print(line)
        if missed:
            raise typer.Exit(1)
