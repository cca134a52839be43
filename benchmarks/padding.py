"""What sorting by length inside the step saves: one training step's encoding, as one padded batch and in chunks.

Real texts (pydocs) and real weights (MiniLM, 2 layers), forward and backward, in turns within one run.
"""

from __future__ import annotations

import argparse
import json
import time

import numpy as np
import torch

from limbeck.data import load
from limbeck.matchers import MatcherSpec, build
from limbeck.matchers import chunks as chunks_module


def measure(texts: int, length: int, repeats: int) -> dict[str, float]:
    torch.manual_seed(0)
    tower = build(MatcherSpec(layers=2, document_length=length)).tower
    corpus = load("pydocs").corpus
    rows = np.random.default_rng(0).choice(len(corpus), size=texts, replace=False)
    sample = corpus.take(rows)
    chunked = tower.prepare(sample, "document")
    plain = chunks_module.split_by_length
    chunks_module.split_by_length = lambda lengths, *_: [slice(0, len(lengths))]
    padded = tower.prepare(sample, "document")
    chunks_module.split_by_length = plain
    tokens = {
        name: sum(chunk["attention_mask"].numel() for chunk in prepared["chunks"])
        for name, prepared in (("padded", padded), ("chunked", chunked))
    }
    real = sum(int(chunk["attention_mask"].sum()) for chunk in chunked["chunks"])
    seconds: dict[str, list[float]] = {"padded": [], "chunked": []}
    for _ in range(repeats + 1):
        for name, prepared in (("padded", padded), ("chunked", chunked)):
            began = time.perf_counter()
            tower(prepared).square().sum().backward()
            seconds[name].append(time.perf_counter() - began)
    median = {name: float(np.median(values[1:])) for name, values in seconds.items()}
    return {
        "texts": texts,
        "length": length,
        "chunks": len(chunked["chunks"]),
        "real_tokens": real,
        "padded_tokens": tokens["padded"],
        "chunked_tokens": tokens["chunked"],
        "padded_seconds": median["padded"],
        "chunked_seconds": median["chunked"],
        "speed_up": median["padded"] / median["chunked"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--texts", type=int, default=96)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    found = [measure(options.texts, length, options.repeats) for length in (64, 128)]
    if options.json:
        print(json.dumps(found, indent=2))
        return
    for row in found:
        print(
            f"{row['texts']} documents, at most {row['length']} tokens: {row['real_tokens']:,} real tokens; one batch "
            f"{row['padded_tokens']:,} in {row['padded_seconds']:.2f} s, {row['chunks']} chunks "
            f"{row['chunked_tokens']:,} in {row['chunked_seconds']:.2f} s: {row['speed_up']:.2f} times as fast"
        )


if __name__ == "__main__":
    main()
