"""Search at scale: real passage windows with every kind of index, and made-up vectors for time and memory alone.

    python -m benchmarks.search_scale --passages 100000 --vectors 1000000
    python -m benchmarks.search_scale --passages 100000 --vectors 0 --kinds hnsw --runtimes int8,onnx,torch

The passages are windows of 96 tokens, every 64, of medquad, scifact and esci (BEIR folders in $LIMBECK_DATA), a random
choice of as many as are asked for. Every kind is built and searched in a separate process, so that memory is its own.
Passages are encoded in the first of the runtimes; whole searches are timed with queries encoded in each.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from benchmarks.fresh_process import alone, peak_mb
from limbeck.data import load_beir
from limbeck.data.passages import Passages
from limbeck.data.texts import Texts
from limbeck.evaluation.latency import measure_latency
from limbeck.evaluation.search_speed import search_timings
from limbeck.runtimes.choice import require_runtime, using_runtime
from limbeck.search.build import build_index, load_encoder
from limbeck.search.changes import add_passages, delete_passages
from limbeck.search.dense import KINDS, DenseIndex, build_dense
from limbeck.search.index import DEPTH, SearchIndex
from limbeck.search.recall import recall
from limbeck.search.windows import Windows, cut, window_texts

SETS = ("medquad", "scifact", "esci_us_sub")
WINDOW, STRIDE = 96, 64
MB = 2**20


class MadeUp:
    """Unit vectors around 1000 centres: they cost as much as real ones."""

    dim = 384

    def __init__(self, count: int) -> None:
        self.count = count
        self._centres = np.random.default_rng(0).standard_normal((1000, self.dim)).astype(np.float32)

    def __len__(self) -> int:
        return self.count

    def take(self, rows: np.ndarray) -> np.ndarray:
        generator = np.random.default_rng(1 + int(rows[0]))
        noise = generator.standard_normal((len(rows), self.dim), dtype=np.float32)
        made = self._centres[generator.integers(0, 1000, size=len(rows))] + noise
        return made / np.linalg.norm(made, axis=1, keepdims=True)


def windows(home: Path, count: int, model: str) -> tuple[Texts, list[str]]:
    """Real windows as separate passages, and the queries of the same sets."""
    transformer = load_encoder(model).tower.transformer("document")
    pieces: list[str] = []
    queries: list[str] = []
    for name in SETS:
        data = load_beir(home / name)
        table = cut(data.corpus, Windows(WINDOW, STRIDE), transformer.tokenizer, WINDOW)
        pieces += window_texts(data.corpus, table)
        asked = sorted(data.judgements("test"))
        queries += data.queries.take(data.queries.rows(asked))
    generator = np.random.default_rng(0)
    chosen = np.sort(generator.permutation(len(pieces))[:count])
    if len(chosen) < count:
        raise SystemExit(f"{home} gives {len(pieces):,} windows; ask for fewer with --passages")
    corpus = Texts.from_dict({f"w{row}": pieces[row] for row in chosen.tolist()})
    return corpus, [queries[row] for row in generator.permutation(len(queries))]


def build(
    kind: str, corpus: Texts, queries: list[str], model: str, runtime: str, out: Path, store: Path
) -> dict[str, float]:
    """`queries` decide the search effort; recall is then measured with others."""
    asked = Texts.from_dict({f"q{number}": text for number, text in enumerate(queries)})
    began = time.perf_counter()
    with using_runtime(runtime):
        build_index(model, Passages("windows", corpus, queries=asked), out, kind=kind, store=store)
    return {"seconds": time.perf_counter() - began, "peak_mb": peak_mb()}


def search(out: Path, exact: Path, queries: list[str], runtimes: list[str]) -> dict[str, Any]:
    with using_runtime("torch"):
        reference = SearchIndex.open(exact)
        vectors = reference.dense.encode(queries)
    truth = np.stack([listed.rows for listed in reference.dense.search(vectors, 10)])
    process = psutil.Process()
    before = process.memory_info().rss
    began = time.perf_counter()
    index = SearchIndex.open(out, reference.dense.matcher)
    opened = time.perf_counter() - began
    found = np.stack([listed.rows for listed in index.dense.search(vectors, 10)])
    memory = (process.memory_info().rss - before) / MB
    timings, dense_10 = {}, {}
    for runtime in runtimes:
        with using_runtime(runtime, single=True):
            asked = SearchIndex.open(out)
        timings[runtime] = search_timings(asked, queries, 10).as_json()
        dense_10[runtime] = search_timings(asked, queries, 10, mode="dense").as_json()
    return {
        "open_seconds": opened,
        "recall@10": recall(found, truth),
        "timings": timings,
        "dense top 10": dense_10,
        "overhead": overhead(index, queries[:200]),
        "memory_mb": memory,
    }


def change(out: Path, corpus: Texts, runtime: str) -> dict[str, float]:
    """Seconds to add ten existing passages under other names, and to delete them again, with the model loaded."""
    with using_runtime(runtime):
        model = SearchIndex.open(out).dense.matcher
    texts = {f"new {key}": corpus[key] for key in corpus.ids[:10]}
    began = time.perf_counter()
    add_passages(out, Passages("additions", Texts.from_dict(texts)), model)
    added = time.perf_counter()
    delete_passages(out, texts)
    return {"add_seconds": added - began, "delete_seconds": time.perf_counter() - added}


def overhead(index: SearchIndex, queries: list[str]) -> float:
    """How much longer a hybrid search takes than its two parts one after the other, all to the same depth."""
    ways: list[dict[str, Any]] = [{"mode": "hybrid"}, {"mode": "dense"}, {"mode": "sparse"}]
    spent: list[list[float]] = [[] for _ in ways]
    for query in queries:
        for times, options in zip(spent, ways, strict=True):
            began = time.perf_counter()
            index.rank([query], DEPTH, **options)
            times.append(time.perf_counter() - began)
    hybrid, dense, sparse = np.median(spent, axis=1)
    return float(hybrid / (dense + sparse) - 1)


def made_up(kind: str, count: int, out: Path) -> dict[str, float]:
    vectors = MadeUp(count)
    began = time.perf_counter()
    build_dense(kind, vectors).save(out)
    spent = time.perf_counter() - began
    peak = peak_mb()
    index = DenseIndex.open(out, kind, {"hnsw": 128, "ivf-sq8": 32}.get(kind))
    queries = list(vectors.take(np.arange(200)))
    latency = measure_latency(lambda query: index.search(query[None], 10), queries)
    return {
        "vectors": count,
        "build_seconds": spent,
        "peak_mb": peak,
        "bytes_per_vector": out.stat().st_size / count,
        "p50_ms": latency.p50_ms,
        "p99_ms": latency.p99_ms,
    }


def measure(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = {"passages": options.passages, "kinds": {}, "made_up": {}}
    kinds, runtimes = options.kinds.split(","), [require_runtime(each) for each in options.runtimes.split(",")]
    if options.passages:
        home = Path(os.environ.get("LIMBECK_DATA", "../shared/data"))
        corpus, queries = windows(home, options.passages, options.model)
        store = Path(options.store) if options.store else folder / "encodings"
        asked, queries = queries[options.queries :], queries[: options.queries]
        given = corpus, asked, options.model, runtimes[0]
        first = alone(build, "flat", *given, folder / "exact", store)
        found["encode_and_build_seconds"] = first["seconds"]
        for kind in kinds:
            built = alone(build, kind, *given, folder / kind, store)
            searched = alone(search, folder / kind, folder / "exact", queries, runtimes)
            changed = alone(change, folder / kind, corpus, runtimes[0])
            costs = {"build_seconds": built["seconds"], "build_peak_mb": built["peak_mb"]}
            found["kinds"][kind] = {**costs, **searched, **changed}
            if not options.json:
                print_kind(kind, found["kinds"][kind])
    for kind in kinds if options.vectors else []:
        found["made_up"][kind] = alone(made_up, kind, options.vectors, folder / f"{kind}.faiss")
        if not options.json:
            print_made_up(kind, found["made_up"][kind])
    return found


def print_kind(kind: str, row: dict[str, Any]) -> None:
    timings = next(iter(row["timings"].values()))
    sizes = ", ".join(f"{part} {size:,.0f}" for part, size in timings["bytes_per_passage"].items())
    times = [
        f"  {runtime}, ms p50/p99 of {what}: {told(found['stages'])}"
        for what, every in (("a hybrid search", row["timings"]), ("the dense top 10", row["dense top 10"]))
        for runtime, found in every.items()
    ]
    lines = [
        f"{kind}: {timings['passages']:,} passages built in {row['build_seconds']:.1f} s (peak "
        f"{row['build_peak_mb']:,.0f} MB), opened in {row['open_seconds']:.2f} s, recall@10 {row['recall@10']:.3f}",
        *times,
        f"  bytes a passage: {sizes}; memory while searching {row['memory_mb']:,.0f} MB",
        f"  a hybrid search takes {row['overhead']:+.1%} more than its two parts",
        f"  ten passages added in {row['add_seconds']:.1f} s, deleted in {row['delete_seconds']:.1f} s",
    ]
    print("\n".join(lines), flush=True)


def told(stages: list[dict[str, Any]]) -> str:
    return ", ".join(f"{stage['name']} {stage['p50_ms']:.2f}/{stage['p99_ms']:.2f}" for stage in stages)


def print_made_up(kind: str, row: dict[str, float]) -> None:
    built = f"built in {row['build_seconds']:.1f} s (peak {row['peak_mb']:,.0f} MB)"
    times = f"top 10 in {row['p50_ms']:.2f} ms p50, {row['p99_ms']:.2f} ms p99"
    print(
        f"{kind}: {row['vectors']:,} made-up vectors {built}, {row['bytes_per_vector']:,.0f} bytes each, {times}",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--passages", type=int, default=100_000, help="real windows; 0 for none")
    parser.add_argument("--vectors", type=int, default=1_000_000, help="made-up vectors; 0 for none")
    parser.add_argument("--queries", type=int, default=500)
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--model", default="minilm")
    parser.add_argument("--runtimes", default="torch", help="what encodes queries; the first encodes the passages too")
    parser.add_argument("--store", help="keep encodings in this folder, and use those that are there")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = measure(options, Path(folder))
    if options.json:
        print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
