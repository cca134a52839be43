"""What 2,000 passages cost a dual encoder, or 2,000 pairs a cross-encoder: sentence-transformers in torch, and each
runtime here.

    python -m benchmarks.batches passages --threads 2
    python -m benchmarks.batches pairs --threads 2

All have the same weights (MiniLM, with a head on top for pairs) and the same number of threads. They take turns in one
run on the same texts, tokenising included: documents of pydocs, drawn at random, so of mixed lengths; for pairs, 100
queries with 20 documents each. Padding is the share of tokens that are none. "close" is the mean cosine of vectors, or
the correlation of scores, with those of sentence-transformers. Tokenising pairs is timed alone too: pair by pair as the
library does, and each text once. Other work on the machine slows all of them: trust only the ratios of a quiet machine.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sentence_transformers import CrossEncoder as STCrossEncoder
from sentence_transformers import SentenceTransformer

from limbeck.data.pydocs import load_pydocs
from limbeck.matchers import build, load, matcher_config
from limbeck.matchers.chunks import BLOCK, prepare_chunks
from limbeck.matchers.encoders import encoders
from limbeck.matchers.names import resolve
from limbeck.matchers.splitting import USUAL
from limbeck.progress import reporting
from limbeck.runtimes.choice import installed_runtimes
from limbeck.runtimes.padding import Padding
from limbeck.runtimes.use import use_runtime

Pairs = list[tuple[str, str]]
Contestant = tuple[Callable[[Any], Any], Padding]
THEIRS = "sentence-transformers torch"
BATCH = 32
EACH = 20  # documents of a query


def passages_of(count: int) -> list[str]:
    corpus = load_pydocs().corpus
    rows = np.random.default_rng(0).choice(len(corpus), size=min(count, len(corpus)), replace=False)
    return list(corpus.take(rows.tolist()))


def pairs_of(queries: int, each: int) -> Pairs:
    """Queries with their own document and others by chance."""
    data = load_pydocs()
    generator = np.random.default_rng(0)
    judged = {query: names for grades in data.qrels.values() for query, names in grades.items()}
    found: Pairs = []
    for query in sorted(judged)[:queries]:
        rows = generator.choice(len(data.corpus), size=each - 1, replace=False)
        texts = [data.corpus[next(iter(judged[query]))], *data.corpus.take(rows.tolist())]
        found += [(data.queries[query], text) for text in texts]
    return found


def count_padding(model: torch.nn.Module) -> Padding:
    """Counts what passes through the transformers of a model from now on."""
    padding = Padding()
    for transformer in encoders(model):
        padding.watch(transformer)
    return padding


def dual_encoders(folder: str, runtimes: list[str]) -> dict[str, Contestant]:
    """How each of them encodes passages, and its padding."""
    theirs: Any = SentenceTransformer(folder, device="cpu")

    def encode(texts: list[str]) -> Any:
        return theirs.encode_document(texts, batch_size=BATCH, show_progress_bar=False)

    found: dict[str, Contestant] = {THEIRS: (encode, count_padding(theirs))}
    for runtime in runtimes:
        matcher: Any = use_runtime(load(folder, device="cpu"), runtime)
        found[runtime] = matcher.encode_document, count_padding(matcher)
    return found


def cross_encoders(folder: str, runtimes: list[str]) -> dict[str, Contestant]:
    """How each of them scores pairs, and its padding."""
    theirs: Any = STCrossEncoder(folder, activation_fn=torch.nn.Identity(), device="cpu")

    def predict(pairs: Pairs) -> Any:
        return theirs.predict(pairs, batch_size=BATCH, show_progress_bar=False)

    found: dict[str, Contestant] = {THEIRS: (predict, count_padding(theirs))}
    for runtime in runtimes:
        matcher: Any = use_runtime(load(folder, device="cpu"), runtime)
        found[runtime] = matcher.score, count_padding(matcher)
    return found


def closeness(found: np.ndarray, exact: np.ndarray) -> float:
    """The mean cosine of vectors; the correlation of scores."""
    if found.ndim == 2 and found.shape[1] > 1:
        norms = np.linalg.norm(found, axis=1) * np.linalg.norm(exact, axis=1)
        return float(((found * exact).sum(axis=1) / norms).mean())
    return float(np.corrcoef(found.ravel(), exact.ravel())[0, 1])


def tokenising(folder: str, pairs: Pairs) -> dict[str, float]:
    """Seconds to tokenise all pairs: pair by pair, and each text once."""
    matcher: Any = load(folder, device="cpu")
    budget, blocks = BATCH * USUAL, [pairs[at : at + BLOCK] for at in range(0, len(pairs), BLOCK)]
    shared = matcher._shared()
    ways = {"pair by pair": lambda block: prepare_chunks(block, matcher._preprocess, budget=budget)}
    if shared is not None:
        ways["each text once"] = lambda block: shared.chunks(block, budget)
    spent = {}
    for name, way in ways.items():
        began = time.perf_counter()
        for block in blocks:
            way(block)
        spent[name] = time.perf_counter() - began
    return spent


def measure(every: dict[str, Contestant], work: list[Any], rounds: int) -> list[dict[str, Any]]:
    """The best round of each; ratios are to sentence-transformers."""
    found = {name: np.asarray(run(work[:64])) for name, (run, _) in every.items()}  # and warm up
    for _, padding in every.values():
        padding.all = padding.real = 0
    spent: dict[str, list[float]] = {name: [] for name in every}
    for _ in range(rounds):
        for name, (run, _) in every.items():
            began = time.perf_counter()
            run(work)
            spent[name].append(time.perf_counter() - began)
    exact, base = found[THEIRS], min(spent[THEIRS])
    return [
        {
            "what": name,
            "seconds": min(seconds),
            "rate": len(work) / min(seconds),
            "times": base / min(seconds),
            "padding": every[name][1].share,
            "close": closeness(found[name], exact),
            "worst": float(np.abs(found[name].ravel() - exact.ravel()).max()),
        }
        for name, seconds in spent.items()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["passages", "pairs"])
    parser.add_argument("--start", default="minilm", help="the transformer: a folder or a hub name")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--count", type=int, default=2000, help="passages or pairs")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--runtimes", default=",".join(installed_runtimes()))
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    runtimes = asked.runtimes.split(",")
    torch.set_num_threads(asked.threads)
    torch.manual_seed(0)
    tokens = {}
    with tempfile.TemporaryDirectory() as name, reporting(None):
        if asked.what == "passages":
            rows = measure(dual_encoders(str(resolve(asked.start)), runtimes), passages_of(asked.count), asked.rounds)
        else:
            folder, pairs = str(Path(name) / "model"), pairs_of(asked.count // EACH, EACH)
            build(matcher_config(kind="cross_encoder", start=asked.start)).save_pretrained(folder)
            rows = measure(cross_encoders(folder, runtimes), pairs, asked.rounds)
            tokens = tokenising(folder, pairs)
    if asked.json:
        print(json.dumps({"threads": asked.threads, "rows": rows, "tokenising_seconds": tokens}, indent=2))
        return
    title = f"{asked.count:,} {asked.what}, {asked.threads} threads"
    print(f"{title:<32}{'seconds':>9}{'a second':>10}{'times':>8}{'padding':>9}{'close':>9}{'worst':>10}")
    for row in rows:
        cells = f"{row['seconds']:>9.2f}{row['rate']:>10.1f}{row['times']:>8.2f}{row['padding']:>9.1%}"
        print(f"{row['what']:<32}{cells}{row['close']:>9.5f}{row['worst']:>10.1e}")
    for way, seconds in tokens.items():
        print(f"tokenising {way:<21}{seconds:>9.2f}")


if __name__ == "__main__":
    main()
