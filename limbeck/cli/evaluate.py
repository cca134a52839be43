"""`limbeck evaluate`: quality, speed and size of a model, alone or against another; a gate for CI."""

from __future__ import annotations

from pathlib import Path

import typer

from limbeck.cli.options import DEVICE

SHORTEST = 3  # [CLS], a word piece, [SEP]


def _lengths(text: str | None) -> tuple[int, int] | None:
    from limbeck.errors import LimbeckError

    if text is None:
        return None
    numbers = [part.strip() for part in text.split(",")]
    if len(numbers) != 2 or not all(part.isdigit() and int(part) >= SHORTEST for part in numbers):
        raise LimbeckError(f"--lengths {text}: wants two numbers of tokens from {SHORTEST} on, say 16,64")
    return int(numbers[0]), int(numbers[1])


def register(app: typer.Typer) -> None:
    @app.command()
    def evaluate(
        model: str = typer.Argument(
            help="A model's folder or hub name, a run directory, an index, `bm25`, or a TREC run file."
        ),
        data: str = typer.Argument(help="A BEIR folder, a pair file, MS MARCO files, a hub name, ... or pydocs."),
        task: str = typer.Option(None, help="rerank, retrieve or pairs; by default what the data and model allow."),
        mode: str = typer.Option(None, help="Of an index: dense, sparse or hybrid."),
        fusion: str = typer.Option(None, help="Of a hybrid search: interpolate (Eq. 7) or rrf."),
        alpha: float = typer.Option(None, help="Of a hybrid search: the weight of the sparse scores."),
        split: str = typer.Option("test"),
        against: str = typer.Option(None, help="A second model: paired significance and a confidence interval."),
        against_mode: str = typer.Option(None, help="How the second index is searched, if not by --mode."),
        against_fusion: str = typer.Option(None, help="Likewise for --fusion."),
        against_alpha: float = typer.Option(None, help="Likewise for --alpha."),
        candidates: str = typer.Option(
            None, help="To re-rank: bm25 (the default), given, a TREC run. To search with a ColBERT's ANN: tokens."
        ),
        depth: int = typer.Option(100, min=1, help="Candidates per query, or documents to retrieve."),
        add_judged: bool = typer.Option(False, help="Put judged positives among the candidates."),
        measures: str = typer.Option(None, help="Comma-separated, e.g. ndcg@10,mrr@10,recall@100."),
        relevance_level: int = typer.Option(1, min=1, help="Grade from which a document is relevant; TREC DL has 2."),
        lengths: str = typer.Option(
            None, help="Tokens to read of each text, if fewer than the model was made for: 16,64."
        ),
        head: str = typer.Option(None, help="Of pairs: score with this head of `limbeck score`: torch, onnx or int8."),
        limit: int = typer.Option(None, min=1, help="Measure on so many queries or pairs, drawn by --seed."),
        seed: int = typer.Option(0, min=0, help="Draws the queries or pairs of --limit."),
        store: Path = typer.Option(None, help="Keep document vectors here, and use those that are there."),
        milvus: str = typer.Option(None, help="The Milvus that an index's vectors are in, if you trust that place."),
        run: Path = typer.Option(None, help="Write the ranking to this TREC run file."),
        fail_below: list[str] = typer.Option([], help="Exit with 1 if a measure is lower, e.g. ndcg@10=0.60."),
        device: str = DEVICE,
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
