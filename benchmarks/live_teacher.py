"""The cost of a live teacher: the time of a step with and without it, its share, and MaxSim's part and memory.

The setting of `tct-laptop` on pydocs: a ColBERT of MiniLM's six layers scores every query against every document of the
batch, inside every step of a 3-layer dual encoder. Steps with and without the teacher take turns on the same batches.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from benchmarks.fresh_process import alone, peak_mb
from limbeck.matchers import build
from limbeck.matchers.interactions import MaxSim, TokenVectors
from limbeck.recipe.files import load_recipe
from limbeck.runs.ranking_task import RankingTask
from limbeck.signals import Signals
from limbeck.training.batches import Collator


def seconds(work: Callable[[], Any]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def step_times(steps: int) -> dict[str, float]:
    """Median milliseconds of the parts of a step, over `steps` batches after two that are not counted."""
    recipe = load_recipe("tct-laptop", ["data.train_queries=400"])
    assert recipe.teacher is not None and recipe.teacher.train is not None
    teacher = build(recipe.teacher.train).eval().requires_grad_(False)
    student = build(recipe.student.model_copy(update={"start": "minilm"})).train()
    stage = recipe.stages[0]
    objectives = stage.weighted_objectives()
    optimiser = torch.optim.AdamW(student.parameters(), lr=stage.lr, fused=True)
    with tempfile.TemporaryDirectory() as folder:
        lists = RankingTask(recipe, Path(folder)).lists(stage, seed=0)
    collator = Collator(lists, student, teacher, in_batch=True)
    times: dict[str, list[float]] = {"student": [], "teacher": [], "tokenising": [], "distinct documents": []}
    for number in range(steps + 2):
        examples = [(0, index) for index in range(number * stage.batch_size, (number + 1) * stage.batch_size)]
        start = time.perf_counter()
        batch = collator([(epoch, index % len(lists)) for epoch, index in examples])
        times["tokenising"].append(time.perf_counter() - start)
        start = time.perf_counter()
        with torch.no_grad():
            told = Signals(scores=teacher(batch.live).scores)
        times["teacher"].append(time.perf_counter() - start)
        start = time.perf_counter()
        shown = student(batch.student)
        targets = batch.targets
        sum(weight * objective(shown, told, targets).mean() for weight, objective in objectives).backward()
        optimiser.step()
        optimiser.zero_grad()
        times["student"].append(time.perf_counter() - start)
        times["distinct documents"].append(batch.student.document_count / 1000)
    return {name: statistics.median(spent[2:]) * 1000 for name, spent in times.items()}


def maxsim_costs(queries: int, documents: int, sliced: bool, learns: bool) -> dict[str, float]:
    """All in-batch pairs at the paper's lengths (32 and 150 tokens, 128 dims): milliseconds, and the memory that they
    add to a process that has the vectors; with the backward pass if it `learns`.
    """
    left, right = (
        TokenVectors(torch.randn(count, length, 128, requires_grad=learns), torch.ones(count, length, dtype=torch.bool))
        for count, length in ((queries, 32), (documents, 150))
    )
    maxsim = MaxSim() if sliced else MaxSim(at_once=queries * 32 * documents * 150)

    def once() -> None:
        with torch.set_grad_enabled(learns):
            scores = maxsim([maxsim.prepare(left, 0), maxsim.prepare(right, 1)], None)
            if learns:
                scores.sum().backward()

    before = peak_mb()
    spent = [seconds(once) for _ in range(5)]
    return {"ms": statistics.median(spent) * 1000, "MB": peak_mb() - before}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--queries", type=int, default=96, help="of the batch that MaxSim is timed on")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    step = step_times(options.steps)
    share = step["teacher"] / (step["teacher"] + step["student"])
    maxsim = {
        (way, passes): alone(maxsim_costs, options.queries, 2 * options.queries, way == "sliced", passes != "forward")
        for passes in ("forward", "forward and backward")
        for way in ("sliced", "at once")
    }
    found = {
        "step": step | {"teacher's share": share},
        "maxsim": {f"{way}, {passes}": costs for (way, passes), costs in maxsim.items()},
    }
    if options.json:
        print(json.dumps(found, indent=2))
        return
    print(f"student {step['student']:.0f} ms, live teacher {step['teacher']:.0f} ms a step of 32 queries")
    print(f"and {step['distinct documents']:.0f} distinct documents: {share:.0%} of the step is the teacher's")
    print(f"MaxSim of {options.queries} queries and {2 * options.queries} documents, in a separate process:")
    for name, costs in found["maxsim"].items():
        print(f"  {name}: {costs['ms']:.0f} ms, {costs['MB']:,.0f} MB")


if __name__ == "__main__":
    main()
