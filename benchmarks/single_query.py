"""What one query costs: sentence-transformers in torch and in its own ONNX backend, and each runtime here, in one run.

    python -m benchmarks.single_query --threads 2

All have the same weights and the same number of threads. They take turns on the queries of pydocs, one after the other,
tokenising included. Other work on the machine slows all of them: trust only the ratios of a quiet machine.
sentence-transformers' ONNX backend needs an `optimum-onnx` that knows the installed transformers; it is left out where
there is none.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from sentence_transformers import SentenceTransformer

from limbeck.data.pydocs import load_pydocs
from limbeck.matchers import load
from limbeck.matchers.names import resolve
from limbeck.progress import reporting
from limbeck.runtimes.choice import installed_runtimes
from limbeck.runtimes.use import use_runtime

Encode = Callable[[str], Any]
THEIRS = "sentence-transformers"


def their_onnx(folder: str, threads: int) -> Encode | None:
    """sentence-transformers' own ONNX backend on as many threads, or nothing where it is not installed."""
    try:
        import onnxruntime
        from optimum.onnxruntime import ORTModelForFeatureExtraction  # noqa: F401
    except ImportError:
        return None
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    given = {"session_options": options, "export": True, "provider": "CPUExecutionProvider"}
    model = SentenceTransformer(folder, backend="onnx", device="cpu", model_kwargs=given)
    return lambda text: model.encode_query(text, show_progress_bar=False)


def contestants(start: str, threads: int) -> dict[str, Encode]:
    """How each of them encodes one query."""
    folder = str(resolve(start))
    model = SentenceTransformer(folder, device="cpu")
    found: dict[str, Encode] = {f"{THEIRS} torch": lambda text: model.encode_query(text, show_progress_bar=False)}
    onnx = their_onnx(folder, threads)
    if onnx is not None:
        found[f"{THEIRS} onnx"] = onnx
    for runtime in installed_runtimes():
        matcher: Any = use_runtime(load(folder, device="cpu"), runtime)
        found[runtime] = matcher.encode_query
    return found


def measure(start: str, threads: int, queries: int, rounds: int) -> list[dict[str, Any]]:
    """p50 and p99 over all rounds, and how near the vectors are to sentence-transformers' in torch."""
    torch.set_num_threads(threads)
    every = contestants(start, threads)
    texts = load_pydocs().queries.take(range(queries))
    spent: dict[str, list[float]] = {name: [] for name in every}
    with reporting(None):
        vectors = {name: np.stack([encode(text) for text in texts]) for name, encode in every.items()}  # and warm up
        for _ in range(rounds):
            for name, encode in every.items():
                for text in texts:
                    began = time.perf_counter()
                    encode(text)
                    spent[name].append(time.perf_counter() - began)
    exact = vectors[f"{THEIRS} torch"]
    base = float(np.median(spent[f"{THEIRS} torch"]))
    rows = []
    for name, seconds in spent.items():
        p50, p99 = np.percentile(seconds, [50, 99])
        norms = np.linalg.norm(vectors[name], axis=1) * np.linalg.norm(exact, axis=1)
        cosine = float(((vectors[name] * exact).sum(axis=1) / norms).mean())
        rows.append({"what": name, "p50_ms": 1e3 * p50, "p99_ms": 1e3 * p99, "times": base / p50, "cosine": cosine})
    return rows


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--start", default="minilm", help="the model: a folder or a hub name")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--queries", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    rows = measure(asked.start, asked.threads, asked.queries, asked.rounds)
    if asked.json:
        print(json.dumps({"threads": asked.threads, "rows": rows}, indent=2))
    else:
        print(
            f"{'one query, ' + str(asked.threads) + ' threads':<32}{'p50 ms':>9}{'p99 ms':>9}{'times':>8}{'cosine':>10}"
        )
        for row in rows:
            cells = f"{row['p50_ms']:>9.2f}{row['p99_ms']:>9.2f}{row['times']:>8.1f}{row['cosine']:>10.5f}"
            print(f"{row['what']:<32}{cells}")
