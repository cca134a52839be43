"""The cost of one query for a static encoder, compared with its teacher in sentence-transformers, in one run.

    python -m benchmarks.static_query

Queries are those of pydocs, one after the other, tokenising included. Both take turns at the same number of threads.
On a busy machine the longer call is interrupted more often, so processor time is measured beside the clock. The table
holds MiniLM's token embeddings: what its rows hold costs nothing.
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
from limbeck.matchers import DualEncoder, build, matcher_config
from limbeck.matchers.names import resolve

QUERIES = 40  # queries per round
ROUNDS = 8
PER_TURN = 20  # static queries for each query of the teacher
BATCH = 4096


def seconds(work: Callable[[str], Any], texts: list[str]) -> list[float]:
    """The median time of a single text: wall-clock and processor time."""
    found = []
    for text in texts:
        clock, processor = time.perf_counter(), time.process_time()
        work(text)
        found.append((time.perf_counter() - clock, time.process_time() - processor))
    return np.median(found, axis=0).tolist()


def measure(start: str) -> dict[str, float]:
    matcher = build(matcher_config(start=start, encoder="static", similarity="cosine"))
    assert isinstance(matcher, DualEncoder)
    teacher = SentenceTransformer(resolve(start), device="cpu")
    texts = load_pydocs().queries.take(range(QUERIES * ROUNDS))
    rounds = []
    for number in range(ROUNDS):
        some = texts[number * QUERIES :][:QUERIES]
        slow = seconds(lambda text: teacher.encode_query(text, show_progress_bar=False), some)
        theirs = seconds(lambda text: matcher.tower.model.encode_query(text, show_progress_bar=False), some)
        fast = seconds(matcher.encode_query, some * PER_TURN)
        clock, processor = time.perf_counter(), time.process_time()
        matcher.encode_query((texts * (BATCH // len(texts) + 1))[:BATCH])
        many = [(time.perf_counter() - clock) / BATCH, (time.process_time() - processor) / BATCH]
        rounds.append([slow, theirs, fast, many])
    found = np.array(rounds[1:])  # [rounds, 4, 2]; the first warms up
    names = ("teacher", "static_in_sentence_transformers", "static", "static_in_a_batch")
    medians = 1e6 * np.median(found, axis=0)
    ratios = np.median(found[:, 0] / found[:, 2], axis=0)
    return {
        "threads": torch.get_num_threads(),
        **{f"{name}_us": round(clock, 1) for name, (clock, _) in zip(names, medians.tolist(), strict=True)},
        **{f"{name}_cpu_us": round(cpu, 1) for name, (_, cpu) in zip(names, medians.tolist(), strict=True)},
        "times_as_fast": round(float(ratios[0]), 1),
        "times_less_cpu": round(float(ratios[1]), 1),
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--start", default="minilm", help="the teacher: a folder or a hub name")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    print(json.dumps(measure(options.start), indent=2))
