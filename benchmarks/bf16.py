"""The speed of bfloat16 on this machine: inference and training of MiniLM, compared with float32 in one run.

    python -m benchmarks.bf16

Processors differ: with AVX-512 BF16 or AMX it pays, without them torch computes it by detours and it costs.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import numpy as np
import torch

from limbeck.data.pydocs import load_pydocs
from limbeck.matchers import build, matcher_config
from limbeck.matchers.base import TextBatch
from limbeck.matchers.bf16 import in_bf16

LENGTHS = (24, 64)
PAIRS = 256
ROUNDS = 5


def seconds(work: Callable[[], Any]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def ratio_of(plain: Callable[[], Any], half: Callable[[], Any]) -> tuple[float, float, float]:
    """Median seconds of both, and the median ratio of neighbours; both are warmed up and run in turns."""
    plain(), half()
    found = np.array([(seconds(plain), seconds(half)) for _ in range(ROUNDS)])
    return float(np.median(found[:, 0])), float(np.median(found[:, 1])), float(np.median(found[:, 0] / found[:, 1]))


def measure() -> list[dict[str, Any]]:
    data = load_pydocs()
    rows = data.corpus.take(range(PAIRS))
    queries = data.queries.take(range(PAIRS))
    pairs = list(zip(queries, rows, strict=True))
    results = []
    for layers in (2, 6):
        for kind in ("cross_encoder", "dual_encoder"):
            torch.manual_seed(0)
            matcher = build(
                matcher_config(
                    kind=kind, start="minilm", layers=layers, query_length=LENGTHS[0], document_length=LENGTHS[1]
                )
            )
            prepared = matcher.prepare(TextBatch(queries[:64], rows[:64], torch.arange(64).unsqueeze(1)))

            def infer(half: bool, matcher: Any = matcher) -> np.ndarray:
                with in_bf16(matcher, half):
                    return matcher.score(pairs)

            def step(half: bool, matcher: Any = matcher, prepared: Any = prepared) -> None:
                matcher.train()
                with torch.autocast("cpu", torch.bfloat16) if half else nullcontext():
                    loss = matcher(prepared).scores.float().sum()
                loss.backward()

            exact, rounded = infer(False), infer(True)
            score = ratio_of(lambda infer=infer: infer(False), lambda infer=infer: infer(True))
            train = ratio_of(lambda step=step: step(False), lambda step=step: step(True))
            results.append(
                {
                    "kind": kind,
                    "layers": layers,
                    "scoring": {"pairs_per_second": PAIRS / score[0], "bf16": PAIRS / score[1], "times": score[2]},
                    "training": {"pairs_per_second": 64 / train[0], "bf16": 64 / train[1], "times": train[2]},
                    "largest_difference": float(np.abs(exact - rounded).max()),
                    "spread_of_scores": float(exact.std()),
                    "correlation": float(np.corrcoef(exact, rounded)[0, 1]),
                }
            )
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    found = measure()
    if options.json:
        print(json.dumps(found, indent=2))
        return
    print(f"{torch.get_num_threads()} threads, at most {LENGTHS[0]} and {LENGTHS[1]} tokens; pairs a second")
    for row in found:
        for what in ("scoring", "training"):
            one = row[what]
            print(
                f"{row['kind']:<14} {row['layers']} layers, {what:<8} float32 {one['pairs_per_second']:7.1f}, "
                f"bfloat16 {one['bf16']:7.1f}: {one['times']:.2f} times"
            )
        print(
            f"  scores are off by {row['largest_difference']:.3f} at most (they spread by "
            f"{row['spread_of_scores']:.2f}; correlation {row['correlation']:.5f})"
        )


if __name__ == "__main__":
    main()
