"""What `together: true` gives a stage that trains an encoder on pairs: pairs a second, against pairs at random.

    python -m benchmarks.pairs_together [PAIRS.jsonl]

Without a file, the pairs are pydocs' texts, each with its 22 nearest. Both sides have the same student, the same number
of pairs in a step, and take turns; a step is tokenising, the forward and the backward pass.
"""

from __future__ import annotations

import argparse
import json
import time
from typing import Any

import numpy as np
import torch

from limbeck.data import Pair
from limbeck.data.pairs import load_pairs
from limbeck.data.pydocs import load_pydocs
from limbeck.errors import LimbeckError
from limbeck.matchers import build, matcher_config
from limbeck.training.batches import BatchPlan, Collator
from limbeck.training.pair_lists import PairLists, label_array

TOKENS = 32
NEAR = 22
STEP = 512
ROUNDS = 4


def neighbours_of_pydocs() -> list[Pair]:
    texts = load_pydocs().corpus.take(range(2000))
    vectors = build(matcher_config(start="minilm", document_length=TOKENS)).encode_document(texts)
    nearest = np.argsort(-(vectors @ vectors.T), axis=1)
    return [Pair((texts[row], texts[other]), None) for row in range(len(texts)) for other in nearest[row, 1 : NEAR + 1]]


def measure(pairs: list[Pair]) -> list[dict[str, Any]]:
    lists = PairLists(pairs, label_array(pairs))
    plans = {"together": lists.together, "random": None}
    results = []
    heads: dict[Any, dict[str, Any]] = {"transformer": {"tokens": (4, 4), "dim": 128}, "cosine": {"tokens": (1, 1)}}
    for head, options in heads.items():
        torch.manual_seed(0)
        sizes: dict[str, Any] = {"query_length": TOKENS, "document_length": TOKENS, "head_width": 512, **options}
        student = build(matcher_config(kind="dipair", start="minilm", head=head, **sizes)).train()
        collator = Collator(lists, student)
        seconds: dict[str, list[float]] = {name: [] for name in plans}
        texts: dict[str, list[int]] = {name: [] for name in plans}
        batches = {name: iter(BatchPlan(len(lists), STEP, ROUNDS + 1, 0, order)) for name, order in plans.items()}
        for _ in range(ROUNDS + 1):
            for name in plans:
                began = time.perf_counter()
                inputs = collator(next(batches[name]))["student"]
                student(inputs).scores.sum().backward()
                seconds[name].append(time.perf_counter() - began)
                chunks = (chunk for some in inputs.texts for chunk in some.passes)
                texts[name].append(sum(len(chunk["input_ids"]) for chunk in chunks))
                student.zero_grad()
        found = {name: float(np.median(times[1:])) for name, times in seconds.items()}  # the first warms up
        results.append(
            {
                "head": head,
                "pairs_per_second": {name: STEP / median for name, median in found.items()},
                "texts_in_a_step": {name: float(np.mean(counts[1:])) for name, counts in texts.items()},
                "times": found["random"] / found["together"],
            }
        )
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pairs", nargs="?", help="a pair file")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    try:
        given = load_pairs(options.pairs).splits if options.pairs else {"train": neighbours_of_pydocs()}
    except LimbeckError as error:
        raise SystemExit(f"pairs_together: {error}") from error
    pairs = [pair for split in given.values() for pair in split]
    found = measure(pairs)
    if options.json:
        print(json.dumps(found, indent=2))
        return
    print(f"{torch.get_num_threads()} threads, {len(pairs):,} pairs, {STEP} in a step, at most {TOKENS} tokens a text")
    for row in found:
        speed, texts = row["pairs_per_second"], row["texts_in_a_step"]
        print(
            f"{row['head']:<12} at random {speed['random']:6.0f} pairs a second ({texts['random']:.0f} texts in a step)"
            f", together {speed['together']:6.0f} ({texts['together']:.0f} texts): {row['times']:.1f} times"
        )


if __name__ == "__main__":
    main()
