"""The cost of `virt` in training: the time of a step and the peak memory, with it and without it.

Three steps of one student on the same batches take turns: labels alone, labels and the scores of a live cross-encoder,
and both with `virt`. The ratio to the second is the price of the attention itself; to the first, that of the teacher
too. Memory is measured in a fresh process for each.

    python -m benchmarks.virt_objective
    python -m benchmarks.virt_objective --start FOLDER --batch 4 --lengths 8 8 --steps 2
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from typing import Any

import numpy as np
import torch

from benchmarks.fresh_process import alone, peak_mb
from limbeck.matchers import Matcher, TextBatch, build, matcher_config
from limbeck.recipe.stage import Stage
from limbeck.signals import Targets
from limbeck.training.attention import attention_shown
from limbeck.training.teachers import live_signals

WAYS = {
    "labels": ["binary_ce"],
    "labels and scores": ["binary_ce", "soft_binary_ce"],
    "labels, scores and virt": ["binary_ce", "soft_binary_ce", "virt"],
}
WORDS = "copy move open close read write file folder list sort number text object value error module".split()


class Steps:
    """A student, its live teacher and pairs of texts as long as they may be."""

    def __init__(self, kind: str, start: str, batch: int, lengths: tuple[int, int]) -> None:
        told: dict[str, Any] = {"init_from": start, "query_length": lengths[0], "document_length": lengths[1]}
        self.student: Matcher = build(matcher_config(kind=kind, **told)).train()
        self.teacher = build(matcher_config(kind="cross_encoder", **told)).eval().requires_grad_(False)
        self.optimiser = torch.optim.AdamW(self.student.parameters(), lr=1e-5, fused=True)
        self.size, self.lengths = batch, lengths

    def texts(self, seed: int) -> TextBatch:
        generator = np.random.default_rng(seed)
        sides = [
            [" ".join(generator.choice(WORDS, size=generator.integers(most // 2, most))) for _ in range(self.size)]
            for most in self.lengths
        ]
        return TextBatch(sides[0], sides[1], torch.arange(self.size).unsqueeze(1))

    def run(self, objectives: list[str], seed: int) -> float:
        """Seconds of one step, without tokenising."""
        stage = Stage(objectives=objectives, steps=1)
        with attention_shown(self.student, self.teacher, stage):
            batch = self.texts(seed)
            inputs, live = self.student.prepare(batch), self.teacher.prepare(batch)
            shape = (self.size, 1)
            targets = Targets(torch.ones(shape, dtype=torch.bool), torch.ones(shape), lists=batch.lists)
            start = time.perf_counter()
            told = live_signals(self.teacher, live, stage.teacher_signals, targets) if stage.needs_teacher else None
            shown = self.student(inputs, stage.student_signals)
            losses = [weight * each(shown, told, targets).mean() for weight, each in stage.weighted_objectives()]
            torch.stack(losses).sum().backward()
            self.optimiser.step()
            self.optimiser.zero_grad()
            return time.perf_counter() - start


def step_times(options: argparse.Namespace) -> dict[str, float]:
    """Median milliseconds of a step; the variants take turns, and the first turn is not counted."""
    steps = Steps(options.kind, options.start, options.batch, tuple(options.lengths))
    spent: dict[str, list[float]] = {way: [] for way in WAYS}
    for seed in range(options.steps + 1):
        for way, objectives in WAYS.items():
            spent[way].append(steps.run(objectives, seed))
    return {way: statistics.median(times[1:]) * 1000 for way, times in spent.items()}


def memory(options: argparse.Namespace, way: str) -> float:
    """The peak memory in MB of a process that runs steps of one variant."""
    steps = Steps(options.kind, options.start, options.batch, tuple(options.lengths))
    for seed in range(options.steps):
        steps.run(WAYS[way], seed)
    return peak_mb()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kind", default="dual_encoder")
    parser.add_argument("--start", default="minilm", help="what student and teacher start from")
    parser.add_argument("--batch", type=int, default=28)
    parser.add_argument("--lengths", type=int, nargs=2, default=(128, 128), metavar=("QUERY", "DOCUMENT"))
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    times = step_times(options)
    peaks = {way: alone(memory, options, way) for way in WAYS}
    found = {way: {"ms": times[way], "MB": peaks[way]} for way in WAYS}
    if options.json:
        print(json.dumps(found, indent=2))
        return
    plain, scores, virt = found.values()
    for way, costs in found.items():
        print(f"{way:25} {costs['ms']:8.0f} ms a step, {costs['MB']:7,.0f} MB at most")
    print(f"virt: {virt['ms'] / scores['ms']:.2f} times a step with scores, {virt['MB'] / scores['MB']:.2f} its memory")
    print(f"      {virt['ms'] / plain['ms']:.2f} times a step with labels, {virt['MB'] / plain['MB']:.2f} its memory")


if __name__ == "__main__":
    main()
