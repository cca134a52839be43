"""Training throughput against sentence-transformers' own trainer, and quality after the same time.

Both sides train the same start (MiniLM's first layers) on the same batches, with the same loss (checked on one batch),
lengths, dropout, fused AdamW, clipping and learning rate, without evaluation, checkpoints and logging.
They take turns in short blocks, and a ratio is that of two neighbouring blocks with the same batches.

What sentence-transformers is given: its documented columns and labels for MarginMSELoss (query, positive, negative;
the teacher's margin) and DistillKLDivLoss (query, positive, 7 negatives; the teacher's scores); all document columns in
one merged forward pass, which its losses do by themselves; a length for each side by `router_mapping`.
It has no sampler by length (its trainer passes over `train_sampling_strategy`), so its batches come through its hook
for custom batch samplers, and are limbeck's. What limbeck does otherwise: it encodes each distinct document of a batch
once, in chunks of similar length, looks into the token table once a step, and draws fewer random numbers for dropout
(`limbeck/training/cpu_speedups.py`).

    python -m benchmarks.training_throughput                 # two losses x three lengths x two kinds of text
    python -m benchmarks.training_throughput --quality 120   # nDCG@10 on dev after 120 seconds of training each

sentence-transformers' trainer needs the `datasets` package: pip install 'limbeck[hub]'.
"""

from __future__ import annotations

import argparse
import json
import math
import tempfile
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.training_sides import (
    BATCH_SIZE,
    LENGTHS,
    LIST_SIZES,
    Clock,
    Limbeck,
    SentenceTransformers,
    Side,
    Tokens,
    fixed_lists,
    loss_on_first_batch,
    open_session,
    write_start,
)
from limbeck.matchers import DualEncoder
from limbeck.runs.ranking_task import RankingTask
from limbeck.runs.teacher_step import prepare_teacher
from limbeck.training.lists import RankingLists

BLOCK = 3  # timed steps between two turns
LONG_RUN = 1_000_000  # more steps than any time allows
SIDES: dict[str, type[Side]] = {"limbeck": Limbeck, "sentence_transformers": SentenceTransformers}


def make_sides(
    start: Path, lists: RankingLists, objective: str, folder: Path
) -> tuple[dict[str, Side], dict[str, float]]:
    """Both sides, after a check that their losses agree on one batch."""
    sides: dict[str, Side] = {}
    for name, kind in SIDES.items():
        place = folder / name
        place.mkdir(exist_ok=True)
        sides[name] = kind(start, lists, objective, place)
    losses = {name: loss_on_first_batch(side) for name, side in sides.items()}
    assert math.isclose(*losses.values(), rel_tol=1e-4), f"{objective}: the losses differ, {losses}"
    return sides, losses


def seconds_per_step(side: Side, steps: int, seed: int) -> float:
    """The time of `steps` steps, tokenising included; one more before them and one after them are not counted.

    The first makes the optimiser's state. The last is there because one of the trainers tokenises a batch ahead.
    """
    trainer: Any = side.trainer(steps + 2, seed)
    clock = Clock()
    trainer.add_callback(clock)
    trainer.train()
    optimiser = trainer.optimizer.optimizer
    assert type(optimiser) is torch.optim.AdamW and optimiser.defaults["fused"], optimiser
    return (clock.ends[steps] - clock.ends[0]) / steps


def measure(session: RankingTask, start: Path, objective: str, long: bool, steps: int, folder: Path) -> dict[str, Any]:
    sides, losses = make_sides(start, fixed_lists(session, objective, long), objective, folder)
    block = min(BLOCK, steps)
    for side in sides.values():
        seconds_per_step(side, 1, seed=0)
    tokens = {name: Tokens().count_in(side) for name, side in sides.items()}
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    blocks = max(1, round(steps / block))
    for number in range(blocks):
        for name in sorted(sides, reverse=number % 2 == 1):
            seconds[name].append(seconds_per_step(sides[name], block, seed=1 + number))
    ratios = np.divide(seconds["sentence_transformers"], seconds["limbeck"])
    queries = blocks * (block + 2) * BATCH_SIZE
    return {
        "loss": objective,
        "documents_per_query": LIST_SIZES[objective],
        "text": "long" if long else "mixed",
        "steps": blocks * block,
        "documents": queries * LIST_SIZES[objective],
        **{
            name: {
                "loss_on_one_batch": losses[name],
                "ms_per_step": 1000 * float(np.median(seconds[name])),
                "queries_per_second": BATCH_SIZE / float(np.median(seconds[name])),
                "padding": 1 - tokens[name].real / tokens[name].computed,
                "documents_encoded": tokens[name].texts - queries,
                "tokens_per_step": tokens[name].computed / (blocks * (block + 2)),
            }
            for name in sides
        },
        "ratios": ratios.tolist(),
        "speed_up": float(np.median(ratios)),
    }


def print_row(row: dict[str, Any]) -> None:
    print(
        f"\n{row['loss']}, {row['documents_per_query']} documents a query, {row['text']} text, at most "
        f"{row['query_length']} and {row['document_length']} tokens"
    )
    for name in SIDES:
        side = row[name]
        print(
            f"  {name.replace('_', '-'):<21} {side['queries_per_second']:6.1f} queries/s, "
            f"{side['ms_per_step']:7.1f} ms a step, {side['tokens_per_step']:7,.0f} tokens a step, "
            f"{side['padding']:4.0%} of them padding, "
            f"{side['documents_encoded']:,} of {row['documents']:,} documents encoded; "
            f"loss of the first batch {side['loss_on_one_batch']:.5f}"
        )
    print(
        f"  {row['speed_up']:.2f} times as fast (median of {len(row['ratios'])} pairs of blocks, "
        f"{min(row['ratios']):.2f} to {max(row['ratios']):.2f})",
        flush=True,
    )


def throughput(data: str, layers: int, steps: int, folder: Path, show: bool) -> list[dict[str, Any]]:
    session = open_session(data, train_queries=128, folder=folder / "session")
    rows = []
    for query_length, document_length in LENGTHS:
        start = write_start(folder / f"start-{document_length}", layers, (query_length, document_length))
        for objective in LIST_SIZES:
            for long in (False, True):
                lengths = {"query_length": query_length, "document_length": document_length}
                rows.append(lengths | measure(session, start, objective, long, steps, folder))
                if show:
                    print_row(rows[-1])
    return rows


def quality(data: str, layers: int, seconds: float, folder: Path, show: bool) -> dict[str, Any]:
    """nDCG@10 on the dev queries, re-ranking BM25's best 50, after both sides have trained for `seconds`."""
    session = open_session(data, train_queries=1000, folder=folder / "session")
    teacher = prepare_teacher(session)
    assert session.judged_dev is not None and teacher is not None
    start = write_start(folder / "start", layers, LENGTHS[1])
    found: dict[str, Any] = {
        "seconds": seconds,
        "teacher": session.judged_dev(teacher),
        "start": session.judged_dev(DualEncoder.from_pretrained(start)),
        "trained": [],
    }
    if show:
        print(
            f"\nnDCG@10 on dev: teacher {found['teacher']['ndcg@10']:.3f}, start {found['start']['ndcg@10']:.3f}",
            flush=True,
        )
    for objective in LIST_SIZES:
        sides, _ = make_sides(start, fixed_lists(session, objective, long=False), objective, folder)
        for name, side in sides.items():
            trainer, clock = side.trainer(LONG_RUN, seed=1), Clock(seconds)
            trainer.add_callback(clock)
            trainer.train()
            row = {
                "side": name,
                "loss": objective,
                "seconds": clock.ends[-1] - clock.began,
                "steps": len(clock.ends),
                **session.judged_dev(side.matcher.eval()),
            }
            found["trained"].append(row)
            if show:
                print(
                    f"  {objective:<11} {name.replace('_', '-'):<21} {row['steps']:>5} steps in "
                    f"{row['seconds']:.0f} s: nDCG@10 {row['ndcg@10']:.3f}",
                    flush=True,
                )
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="pydocs", help="a ranking set with a train and a dev split")
    parser.add_argument("--layers", type=int, default=2, help="of MiniLM's 6")
    parser.add_argument("--steps", type=int, default=9, help="timed steps of each side in each setting")
    parser.add_argument("--quality", type=float, metavar="SECONDS", help="train for so long, then compare nDCG@10")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if find_spec("datasets") is None:
        raise SystemExit("sentence-transformers' trainer needs the `datasets` package: pip install 'limbeck[hub]'")
    if not options.json:
        print(
            f"{options.data}, {options.layers} layers, {BATCH_SIZE} queries a step, {torch.get_num_threads()} threads; "
            f"sentence-transformers {version('sentence-transformers')}, torch {torch.__version__}",
            flush=True,
        )
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        found: Any
        if options.quality:
            found = quality(options.data, options.layers, options.quality, folder, not options.json)
        else:
            found = throughput(options.data, options.layers, options.steps, folder, not options.json)
    if options.json:
        print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
