"""`limbeck index`: build an index, add passages to it, delete passages from it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from limbeck.cli.options import DEVICE, RUNTIME

if TYPE_CHECKING:
    from limbeck.search.index import SearchIndex

USAGE = "give MODEL and DATA to build, or --add, --delete, --compact or --verify to change or check an index"

BUILD_ONLY = ("kind", "language", "k1", "b", "window", "stride", "no_dense", "no_sparse", "expansions")


def register(app: typer.Typer) -> None:
    @app.command()
    def index(
        context: typer.Context,
        model: str = typer.Argument(None, help="A dual encoder: a folder, a run directory or a hub name."),
        data: str = typer.Argument(None, help="A BEIR folder, a .jsonl or .tsv of passages, a hub name, pydocs."),
        out: Path = typer.Option(..., "--out", help="Folder of the index; if it is killed, the same command resumes."),
        kind: str = typer.Option("auto", help="flat (exact), hnsw, ivf-sq8 or sq8; auto chooses by size."),
        language: str = typer.Option("english", help="Language of stemming and stop words."),
        k1: float = typer.Option(0.9, help="BM25 k1: how quickly repeated words stop adding to the score."),
        b: float = typer.Option(0.4, help="BM25 b: how strongly long passages are penalised, 0 to 1."),
        window: int = typer.Option(
            None, min=1, help="Cut passages into windows of this many tokens; the best window gives the score."
        ),
        stride: int = typer.Option(None, min=1, help="Tokens from one window to the next; half a window by default."),
        no_dense: bool = typer.Option(False, "--no-dense", help="Build BM25 only; leave MODEL out."),
        no_sparse: bool = typer.Option(False, "--no-sparse", help="Vectors alone."),
        store: str = typer.Option(
            None,
            help="Folder to keep encodings in, or milvus[+https]://HOST:PORT/COLLECTION for the vectors.",
        ),
        milvus: str = typer.Option(None, help="Address of the Milvus with the index's vectors, if you trust it."),
        expansions: Path = typer.Option(None, help="Queries that `limbeck expand` wrote; BM25 counts them too."),
        add: str = typer.Option(
            None, "--add", help="Add the passages of a file or data set; passages with the same id are replaced."
        ),
        delete: Path = typer.Option(None, "--delete", help="Delete the passages named in this file, one id per line."),
        compact: bool = typer.Option(False, "--compact", help="Merge all segments into one, without deleted passages."),
        verify: bool = typer.Option(False, "--verify", help="Read every file and compare it with its checksum."),
        mix_runtimes: bool = typer.Option(
            False, "--mix-runtimes", help="With --add: allow vectors of another --runtime than the index has."
        ),
        seed: int = typer.Option(0),
        device: str = DEVICE,
        runtime: str = RUNTIME,
        as_json: bool = typer.Option(False, "--json", help="Print the result as JSON."),
    ) -> None:
        """Index passages for `limbeck search`, with a model's vectors and with BM25."""
        from limbeck.cli.early import require_data, require_index, require_model

        if data is not None or no_dense:
            require_data(data or model)
        require_model(None if no_dense and data is None else model)
        if data is None and not no_dense and (delete or compact or verify or add):
            require_index(out)
        from limbeck import api
        from limbeck.console import reporter
        from limbeck.errors import LimbeckError
        from limbeck.progress import reporting, say
        from limbeck.search.index import SearchIndex
        from limbeck.search.milvus_address import is_milvus, trust

        for place in filter(None, [milvus, store if is_milvus(store) else None]):
            trust(place)
        if mix_runtimes and add is None:
            raise LimbeckError("--mix-runtimes requires --add; leave it out")
        changes = bool(add or delete or compact or verify)
        if no_dense and data is None:
            model, data = None, model
        with reporting(reporter()):
            if data is not None:
                if changes:
                    raise LimbeckError("cannot build and change an index in one command; leave DATA out")
                if model is None and not no_dense:
                    raise LimbeckError(f"MODEL is missing; {USAGE}")
                found = api.index(
                    model, data, out, kind=kind, language=language, k1=k1, b=b, window=window, stride=stride,
                    dense=not no_dense, sparse=not no_sparse, store=store, expansions=expansions, seed=seed,
                )  # fmt: skip
            elif changes:
                _refuse_build_options(context)
                _change(out, model, add, delete, compact, store, seed, mix_runtimes)
                found = SearchIndex.open(out)
                if verify:
                    found.verify()
                    say(f"{out}: all files match their checksums")
            else:
                raise LimbeckError(f"nothing to do; {USAGE}")
        facts = _facts(found)
        print(json.dumps(facts, indent=2) if as_json else _described(found, facts))


def _refuse_build_options(context: typer.Context) -> None:
    """Refuse options that only apply when an index is built."""
    from limbeck.errors import LimbeckError

    for name in BUILD_ONLY:
        source = context.get_parameter_source(name)
        if source is not None and source.name != "DEFAULT":
            option = f"--{name.replace('_', '-')}"
            raise LimbeckError(f"{option}: cannot change in an existing index; leave it out, or build a new index")


def _change(
    out: Path,
    model: str | None,
    add: str | None,
    delete: Path | None,
    compact: bool,
    store: str | None,
    seed: int,
    mix_runtimes: bool,
) -> None:
    from limbeck.data.passages import iterate_ids, load_passages
    from limbeck.runtimes.choice import measuring_on
    from limbeck.search.build import load_encoder
    from limbeck.search.changes import change_index, compact_index

    passages = load_passages(add) if add is not None else None
    with measuring_on(add, lambda _: 0 if passages is None else len(passages.corpus)):
        encoder = load_encoder(model) if model is not None else None
        if delete is not None or add is not None:
            unwanted = iterate_ids(delete) if delete is not None else ()
            change_index(out, passages, unwanted, encoder, store, mix_runtimes)
    if compact:
        compact_index(out, seed)


def _facts(found: SearchIndex) -> dict[str, Any]:
    from limbeck.search.sizes import part_bytes

    manifest = found.manifest
    return {
        "out": str(found.path),
        "passages": len(found),
        "deleted": manifest.deleted,
        "segments": len(manifest.segments),
        "dense": vars(manifest.dense) if manifest.dense else None,
        "vectors": sum(segment.vectors for segment in manifest.segments),
        "sparse": vars(manifest.sparse) if manifest.sparse else None,
        "fields": found.collection.field_names,
        "alpha": manifest.alpha,
        "bytes": part_bytes(found),
    }


def _described(found: SearchIndex, facts: dict[str, Any]) -> str:
    from limbeck.search.mixing import described

    manifest, passages = found.manifest, max(1, len(found))
    lines = [f"{found.path}: {len(found):,} passages"]
    if manifest.deleted or len(manifest.segments) > 1:
        lines[0] += f" in {len(manifest.segments)} segments, {manifest.deleted:,} deleted"
    if manifest.dense is not None:
        dense = manifest.dense
        text = f"  dense   {dense.kind}, {facts['vectors']:,} vectors of {dense.dim} numbers"
        text += f" ({dense.window} tokens every {dense.stride})" if dense.window else ""
        if dense.kind == "flat":
            text += ", exact"
        elif dense.recall is not None:
            text += f", recall@10 {dense.recall:.3f} of exact ({dense.measured_with})"
        if dense.mixed:
            text += f", mixed of {' and '.join(map(described, [dense.computed, *dense.mixed]))}"
        size = _size(facts["bytes"]["dense"], passages)
        lines.append(text + (f", in {dense.store}" if dense.store else size))
    if manifest.sparse is not None:
        text = "  sparse  BM25, {language}, k1 {k1:g}, b {b:g}".format(**vars(manifest.sparse))
        text += ", with expansions" if manifest.sparse.expansions else ""
        lines.append(text + _size(facts["bytes"]["sparse"], passages))
    lines.append(f"  texts   {', '.join(facts['fields']) or 'no fields'}" + _size(facts["bytes"]["texts"], passages))
    if len(manifest.segments) > 8:
        lines.append(f"  many segments make search slower: limbeck index --compact --out {found.path}")
    lines.append(f'next: limbeck search {found.path} "your query"')
    return "\n".join(lines)


def _size(count: int, passages: int) -> str:
    return f", {count / passages:,.0f} bytes per passage"
