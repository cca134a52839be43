"""The encoding store: appending, opening and random access, against its size on disk."""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path

import numpy as np

from limbeck.evaluation import folder_bytes
from limbeck.stores import EncodingStore


def measure(texts: int, dim: int, dtype: str, block: int, lookups: int) -> dict[str, float | str]:
    generator = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "store"
        store = EncodingStore.open(path, {"benchmark": dtype}, dim, dtype=dtype)
        began = time.perf_counter()
        for start in range(0, texts, block):
            count = min(block, texts - start)
            vectors = generator.standard_normal((count, dim), dtype=np.float32)
            store.append([f"text {start + number}" for number in range(count)], vectors)
        appended = time.perf_counter() - began
        began = time.perf_counter()
        store = EncodingStore.read(path)
        opened = time.perf_counter() - began
        wanted = [f"text {number}" for number in generator.integers(0, texts, size=lookups)]
        store.get(wanted)
        began = time.perf_counter()
        store.get(wanted)
        found = time.perf_counter() - began
        return {
            "dtype": dtype,
            "texts": texts,
            "dim": dim,
            "appends_per_second": texts / appended,
            "open_seconds": opened,
            "gets_per_second": lookups / found,
            "bytes_per_text": folder_bytes(path) / texts,
            "relative_error": store.error.relative,
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--texts", type=int, default=200_000)
    parser.add_argument("--dim", type=int, default=384)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    rows = [measure(options.texts, options.dim, dtype, 10_000, 10_000) for dtype in ("float32", "float16", "int8")]
    if options.json:
        print(json.dumps(rows, indent=2))
        return
    for row in rows:
        print(
            f"{row['dtype']:<8} {row['texts']:,} x {row['dim']}: {row['appends_per_second']:,.0f} appends/s, opened in "
            f"{row['open_seconds']:.3f} s, {row['gets_per_second']:,.0f} random gets/s, {row['bytes_per_text']:.0f} "
            f"bytes a text, relative error {row['relative_error']:.4f}"
        )


if __name__ == "__main__":
    main()
