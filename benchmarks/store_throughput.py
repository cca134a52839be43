"""The encoding store: appending, opening and random access, its size on disk, and its memory use.

    python -m benchmarks.store_throughput
    python -m benchmarks.store_throughput --texts 10000000 --tokens 4 --dim 128 --dtypes int8

Memory is what the process holds that is no mirror of a file, at most, beyond what it held before: pages of files the
system takes back when it needs them.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from limbeck.evaluation import folder_bytes
from limbeck.stores import EncodingStore


def anonymous_mb() -> float:
    """Memory of this process that is not backed by a file."""
    (line,) = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("RssAnon")]
    return int(line.split()[1]) / 1024


def measure(texts: int, tokens: int | None, dim: int, dtype: str, block: int, lookups: int) -> dict[str, Any]:
    generator = np.random.default_rng(0)
    shape = (dim,) if tokens is None else (tokens, dim)
    before, most = anonymous_mb(), 0.0
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "store"
        store = EncodingStore.open(path, {"benchmark": dtype}, dim, dtype=dtype, tokens=tokens)
        began = time.perf_counter()
        for start in range(0, texts, block):
            count = min(block, texts - start)
            vectors = generator.standard_normal((count, *shape), dtype=np.float32)
            store.append([f"text {start + number}" for number in range(count)], vectors)
            most = max(most, anonymous_mb())
        appended = time.perf_counter() - began
        began = time.perf_counter()
        store = EncodingStore.read(path)
        opened = time.perf_counter() - began
        wanted = [f"text {number}" for number in generator.integers(0, texts, size=lookups)]
        store.get(wanted)
        began = time.perf_counter()
        store.get(wanted)
        found = time.perf_counter() - began
        most = max(most, anonymous_mb())
        return {
            "dtype": dtype,
            "texts": texts,
            "tokens": tokens,
            "dim": dim,
            "appends_per_second": texts / appended,
            "open_seconds": opened,
            "gets_per_second": lookups / found,
            "bytes_per_text": folder_bytes(path) / texts,
            "relative_error": store.error.relative,
            "memory_mb": most - before,
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--texts", type=int, default=200_000)
    parser.add_argument("--tokens", type=int, help="vectors a text; one without it")
    parser.add_argument("--dim", type=int, default=384)
    parser.add_argument("--dtypes", nargs="+", default=["float32", "float16", "int8"])
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    rows = [measure(options.texts, options.tokens, options.dim, dtype, 10_000, 10_000) for dtype in options.dtypes]
    if options.json:
        print(json.dumps(rows, indent=2))
        return
    for row in rows:
        what = f"{row['dtype']:<8} {row['texts']:,} x {row['tokens'] or 1} x {row['dim']}"
        print(
            f"{what}: {row['appends_per_second']:,.0f} appends/s, opened in "
            f"{row['open_seconds']:.3f} s, {row['gets_per_second']:,.0f} random gets/s, {row['bytes_per_text']:.0f} "
            f"bytes a text, relative error {row['relative_error']:.4f}, {row['memory_mb']:,.0f} MB of memory"
        )


if __name__ == "__main__":
    main()
