"""`python -m benchmarks`: the benchmarks that need only an installation, at their default sizes."""

from __future__ import annotations

import runpy
import sys

MODULES = ["corpus_memory", "padding", "store_throughput", "pair_scoring"]

if __name__ == "__main__":
    sys.argv = sys.argv[:1]
    for name in MODULES:
        print(f"\n== {name}", flush=True)
        runpy.run_module(f"benchmarks.{name}", run_name="__main__")
