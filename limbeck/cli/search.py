"""`limbeck search`: search an index with one query, with many, or at a prompt."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from limbeck.cli.options import DEVICE, LATER_RUNTIME

if TYPE_CHECKING:
    from limbeck.search.index import SearchIndex
    from limbeck.search.results import Results

RUN_DEPTH = 1000


def register(app: typer.Typer) -> None:
    @app.command()
    def search(
        context: typer.Context,
        index: Path = typer.Argument(help="Folder that `limbeck index` wrote."),
        query: list[str] = typer.Argument(
            None, help="The query; without it, a prompt (or one query per line from a pipe)."
        ),
        mode: str = typer.Option(None, help="dense, sparse or hybrid; by default every part that the index has."),
        fusion: str = typer.Option(
            None, help="How to join both parts: interpolate (Eq. 7), or rrf; rrf if no alpha is tuned."
        ),
        alpha: float = typer.Option(
            None, help="Weight of the sparse scores; by default the one that `limbeck tune` found."
        ),
        k: int = typer.Option(None, "--k", min=1, help="Passages per query; 10, or 1000 in a run file."),
        where: list[str] = typer.Option([], "--where", help="A condition on a field: lang=en, year>=2020; repeat it."),
        explain: bool = typer.Option(
            False, "--explain", help="Show both scores and ranks, and how much each shared word adds."
        ),
        queries: Path = typer.Option(
            None, "--queries", help="A file of queries (.jsonl, .tsv), with --run or --timings."
        ),
        run: Path = typer.Option(None, "--run", help="Write the answers to this TREC run file."),
        timings: bool = typer.Option(
            False, "--timings", help="Time every stage of single queries, and show the bytes of all parts."
        ),
        encoder: str = typer.Option(
            None, "--encoder", help="Encode queries with this model: a student that keeps the index's document tower."
        ),
        milvus: str = typer.Option(None, help="Address of the Milvus with the index's vectors, if you trust it."),
        device: str = DEVICE,
        runtime: str = LATER_RUNTIME,
        as_json: bool = typer.Option(False, "--json", help="Print JSON."),
    ) -> None:
        """Search an index. Shows passages, their scores, and whether dense or sparse search found them."""
        from limbeck.cli.early import require_index
        from limbeck.runtimes.choice import measuring_on, using_runtime

        alone = "torch" if query and runtime is None else runtime  # opening another takes longer than one query
        context.with_resource(using_runtime(alone, single=queries is None or timings))
        context.with_resource(measuring_on(queries, lambda _: _count(queries)))
        require_index(index)
        from limbeck.files import require_writable

        require_writable(run)
        from limbeck import api
        from limbeck.console import reporter
        from limbeck.errors import LimbeckError
        from limbeck.files import refuse_overwriting
        from limbeck.progress import reporting

        options: dict[str, Any] = {"mode": mode, "fusion": fusion, "alpha": alpha, "where": where}
        if queries is None and (run is not None or timings):
            raise LimbeckError("there are no queries; name a file of queries with --queries")
        if queries is not None and (query or not (run is not None or timings)):
            raise LimbeckError("--queries requires --run or --timings, and no query on the command line")
        if queries is not None and explain:
            raise LimbeckError("--explain requires a single query; leave --queries out")
        refuse_overwriting(run, queries, index)
        with reporting(reporter()):
            opened = api.open_index(index, model=encoder, milvus=milvus)
            opened.check(mode, fusion, alpha)
            opened.allowed(where)
            if queries is not None:
                _many(opened, queries, run, timings, k, options, as_json)
                return
        show = _printer(opened, explain, as_json, indent=2 if query else None)
        if query:
            found = opened.search(" ".join(query), k or 10, explain=explain, **options)
            if found.note and not found.hits:
                raise LimbeckError(found.note)
            show(found)
            return
        for text in _asked():
            try:
                show(opened.search(text, k or 10, explain=explain, **options))
            except LimbeckError as error:
                print(f"limbeck: {error}", file=sys.stderr)


def _count(queries: Path) -> int:
    from limbeck.runtimes.job_size import queries_in

    return queries_in(queries)


def _asked() -> Iterator[str]:
    """Read queries from a prompt, or one per line from a pipe."""
    if sys.stdin.isatty():
        print("One query per line; Ctrl-D ends.", file=sys.stderr)
        while True:
            try:
                text = input("search> ")
            except EOFError:
                print(file=sys.stderr)
                return
            if text.strip():
                yield text
    for line in sys.stdin:
        if line.strip():
            yield line.strip()


def _printer(index: SearchIndex, explain: bool, as_json: bool, indent: int | None) -> Callable[[Results], None]:
    """Show the answers to one query; with several queries, JSON has one line for each."""
    from limbeck.cli.hits import print_results
    from limbeck.console import out as console
    from limbeck.printable import json_text

    def show(results: Results) -> None:
        if as_json:
            print(json_text(results.as_json(), indent))
        else:
            print_results(console, results, index.words, explain)

    return show


def _many(
    index: SearchIndex,
    file: Path,
    run: Path | None,
    timings: bool,
    k: int | None,
    options: dict[str, Any],
    as_json: bool,
) -> None:
    from limbeck.data import write_run
    from limbeck.data.queries import read_queries

    queries = read_queries(file)
    facts: dict[str, Any] = {"queries": len(queries)}
    if run is not None:
        write_run(index.run(queries, k or RUN_DEPTH, **options), run)
        facts["run"] = str(run)
    if timings:
        from limbeck.cli.tables import timings_table
        from limbeck.console import out as console
        from limbeck.evaluation.search_speed import search_timings

        table = search_timings(index, queries.take(range(len(queries))), k or 10, **options)
        if not as_json:
            facts_line = f"{table.mode} search of {table.passages:,} passages, {table.queries:,} queries one by one"
            console.print(facts_line, highlight=False)
            console.print(timings_table(table))
        facts["timings"] = table.as_json()
    if as_json:
        print(json.dumps(facts, indent=2))
    elif run is not None:
        print(f"{run}: {len(queries):,} queries")
