"""The gain of reduced padding, measured in turns within one run.

Training: one step's encoding, forward and backward, as one padded batch and in chunks of similar length (pydocs, 2
layers of MiniLM). Inference: texts sorted by tokens, against sentence-transformers' `encode`, which sorts by characters
(pydocs, and the texts of `--pairs`: product titles, say, whose characters tell less of their tokens).
"""

from __future__ import annotations

import argparse
import json
import time

import numpy as np
import torch

from limbeck.data import PairData, load
from limbeck.matchers import DualEncoder, build, matcher_config
from limbeck.matchers import chunks as chunks_module
from limbeck.matchers import load as load_matcher


def measure(texts: int, length: int, repeats: int) -> dict[str, float]:
    torch.manual_seed(0)
    tower = build(matcher_config(layers=2, document_length=length)).tower
    corpus = load("pydocs").corpus
    rows = np.random.default_rng(0).choice(len(corpus), size=texts, replace=False)
    sample = corpus.take(rows)
    chunked = tower.prepare(sample, "document")
    plain = chunks_module.split_by_length
    chunks_module.split_by_length = lambda lengths, *_, **__: [slice(0, len(lengths))]
    padded = tower.prepare(sample, "document")
    chunks_module.split_by_length = plain
    tokens = {
        name: sum(chunk["attention_mask"].numel() for chunk in prepared.passes)
        for name, prepared in (("padded", padded), ("chunked", chunked))
    }
    real = sum(int(chunk["attention_mask"].sum()) for chunk in chunked.passes)
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
        "chunks": len(chunked.passes),
        "real_tokens": real,
        "padded_tokens": tokens["padded"],
        "chunked_tokens": tokens["chunked"],
        "padded_seconds": median["padded"],
        "chunked_seconds": median["chunked"],
        "speed_up": median["padded"] / median["chunked"],
    }


def measure_inference(source: str, texts: int, repeats: int) -> dict[str, float | str]:
    matcher = load_matcher("minilm")
    assert isinstance(matcher, DualEncoder)
    data = load(source)
    if isinstance(data, PairData):
        pool = sorted({text for pairs in data.splits.values() for pair in pairs for text in pair.texts})
    else:
        pool = list(data.corpus.take(np.arange(len(data.corpus))))
    sample = [pool[row] for row in np.random.default_rng(0).permutation(len(pool))[:texts]]
    ways = {"characters": matcher.tower.model.encode_document, "tokens": matcher.encode_document}
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(repeats):
        for name, encode in ways.items():
            began = time.perf_counter()
            encode(sample)
            seconds[name].append(time.perf_counter() - began)
    median = {f"{name}_seconds": float(np.median(values)) for name, values in seconds.items()}
    speed_up = median["characters_seconds"] / median["tokens_seconds"]
    return {"source": source, "texts": len(sample), **median, "speed_up": speed_up}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", help="a pair set for the inference part, besides pydocs")
    parser.add_argument("--texts", type=int, default=96)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    found = [measure(options.texts, length, options.repeats) for length in (64, 128)]
    sources = ["pydocs", *([options.pairs] if options.pairs else [])]
    inferred = [measure_inference(source, 1024, min(3, options.repeats)) for source in sources]
    if options.json:
        print(json.dumps({"training": found, "inference": inferred}, indent=2))
        return
    for row in found:
        print(
            f"{row['texts']} documents, at most {row['length']} tokens: {row['real_tokens']:,} real tokens; one batch "
            f"{row['padded_tokens']:,} in {row['padded_seconds']:.2f} s, {row['chunks']} chunks "
            f"{row['chunked_tokens']:,} in {row['chunked_seconds']:.2f} s: {row['speed_up']:.2f} times as fast"
        )
    for line in inferred:
        print(
            f"{line['texts']} texts of {line['source']}: sorted by characters {line['characters_seconds']:.2f} s, by "
            f"tokens {line['tokens_seconds']:.2f} s: {line['speed_up']:.2f} times as fast"
        )


if __name__ == "__main__":
    main()
