"""What 2,000 pairs cost a cross-encoder: sentence-transformers' `CrossEncoder.predict` in torch, and each runtime here.

    python -m benchmarks.cross_encoder --threads 2

All have the same weights (MiniLM with a head on top) and the same number of threads, and take turns in one run on the
same pairs: 100 queries of pydocs with 20 documents each, tokenising included. Padding is the share of tokens that are
none. Tokenising alone is timed too: pair by pair as the library does, and each text once. Other work on the machine
slows all of them: trust only the ratios of a quiet machine.
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

from limbeck.data.pydocs import load_pydocs
from limbeck.matchers import build, load, matcher_config
from limbeck.matchers.chunks import BLOCK, prepare_chunks
from limbeck.matchers.splitting import USUAL
from limbeck.progress import reporting
from limbeck.runtimes.choice import installed_runtimes
from limbeck.runtimes.use import use_runtime

Pairs = list[tuple[str, str]]
THEIRS = "sentence-transformers torch"
BATCH = 32


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


class Padding:
    """Counts the tokens that pass through a module, and those that are no padding."""

    def __init__(self, module: torch.nn.Module) -> None:
        self.all = self.real = 0
        module.register_forward_pre_hook(self.count)

    def count(self, module: torch.nn.Module, given: tuple[Any, ...]) -> None:
        mask = given[0]["attention_mask"]
        self.all, self.real = self.all + mask.numel(), self.real + int(mask.sum())

    @property
    def share(self) -> float:
        return 1 - self.real / self.all if self.all else 0.0


def contestants(folder: str, runtimes: list[str]) -> dict[str, tuple[Callable[[Pairs], Any], Padding]]:
    """How each of them scores pairs, and its padding."""
    theirs: Any = STCrossEncoder(folder, activation_fn=torch.nn.Identity(), device="cpu")
    found: dict[str, tuple[Callable[[Pairs], Any], Padding]] = {
        THEIRS: (lambda pairs: theirs.predict(pairs, batch_size=BATCH, show_progress_bar=False), Padding(theirs[0]))
    }
    for runtime in runtimes:
        matcher: Any = use_runtime(load(folder, device="cpu"), runtime)
        found[runtime] = matcher.score, Padding(matcher.model[0])
    return found


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


def measure(start: str, threads: int, pairs: Pairs, rounds: int, runtimes: list[str]) -> dict[str, Any]:
    """The best round of each; ratios are to sentence-transformers."""
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as name, reporting(None):
        folder = str(Path(name) / "model")
        build(matcher_config(kind="cross_encoder", start=start)).save_pretrained(folder)
        every = contestants(folder, runtimes)
        scores = {name: np.asarray(score(pairs[:64])).ravel() for name, (score, _) in every.items()}  # and warm up
        for _, padding in every.values():
            padding.all = padding.real = 0
        spent: dict[str, list[float]] = {name: [] for name in every}
        for _ in range(rounds):
            for name, (score, _) in every.items():
                began = time.perf_counter()
                score(pairs)
                spent[name].append(time.perf_counter() - began)
        tokens = tokenising(folder, pairs)
    exact, base = scores[THEIRS], min(spent[THEIRS])
    rows = [
        {
            "what": name,
            "seconds": min(seconds),
            "pairs_per_second": len(pairs) / min(seconds),
            "times": base / min(seconds),
            "padding": every[name][1].share,
            "correlation": float(np.corrcoef(scores[name], exact)[0, 1]),
            "worst": float(np.abs(scores[name] - exact).max()),
        }
        for name, seconds in spent.items()
    ]
    return {"threads": threads, "pairs": len(pairs), "rows": rows, "tokenising_seconds": tokens}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--start", default="minilm", help="the transformer: a folder or a hub name")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--queries", type=int, default=100)
    parser.add_argument("--each", type=int, default=20, help="documents of a query")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--runtimes", default=",".join(installed_runtimes()))
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    pairs = pairs_of(asked.queries, asked.each)
    found = measure(asked.start, asked.threads, pairs, asked.rounds, asked.runtimes.split(","))
    if asked.json:
        print(json.dumps(found, indent=2))
        return
    title = f"{found['pairs']:,} pairs, {found['threads']} threads"
    print(f"{title:<32}{'seconds':>9}{'pairs/s':>9}{'times':>8}{'padding':>9}{'correlation':>13}{'worst':>10}")
    for row in found["rows"]:
        cells = f"{row['seconds']:>9.2f}{row['pairs_per_second']:>9.1f}{row['times']:>8.2f}{row['padding']:>9.1%}"
        print(f"{row['what']:<32}{cells}{row['correlation']:>13.5f}{row['worst']:>10.1e}")
    for way, seconds in found["tokenising_seconds"].items():
        print(f"tokenising {way:<21}{seconds:>9.2f}")


if __name__ == "__main__":
    main()
