"""The gain of a head that compares from the start: DiPair's transformer head over a frozen encoder, both ways.

    python -m benchmarks.head_start runs/first --epochs 1

takes data, teacher and student of a run or sweep on pairs, and trains the first stage twice: with the first layer's
queries and keys at random, as the paper has it, and as they are here (`HeadLayer.compare`).
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

from limbeck.matchers.interactions.layer import HeadLayer
from limbeck.recipe.files import load_recipe
from limbeck.runs.pair_task import PairTask
from limbeck.runs.train_student import train_student


@contextmanager
def at_random() -> Iterator[None]:
    with patch.object(HeadLayer, "compare", lambda self: None):
        yield


@contextmanager
def comparing() -> Iterator[None]:
    yield


def measure(run: Path, epochs: float, looks: int, seeds: int, folder: Path) -> list[dict[str, Any]]:
    base = load_recipe(run / "recipe.yaml", [f"teacher={run}"])
    session = PairTask(base, folder)
    steps = round(epochs * len(session.splits.train) / 256)
    stage = {"objectives": ["soft_binary_ce"], "steps": steps, "batch_size": 256, "lr": 1e-3, "freeze": ["encoder"]}
    found = []
    for seed in range(seeds):
        for start in (at_random, comparing):
            name = f"{start.__name__}-{seed}"
            values = base.model_dump(mode="json") | {"seed": seed}
            values["stages"] = [stage | {"eval_every": max(1, steps // looks)}]
            with start():
                train_student(session, load_recipe(values), name, folder / name / "student")
            lines = (json.loads(line) for line in session.log.read_text().splitlines())
            dev = [line["dev"] | {"step": line["step"]} for line in lines if line["model"] == name and "dev" in line]
            found.append({"start": start.__name__.replace("_", " "), "seed": seed, "dev": dev})
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--epochs", type=float, default=1.0)
    parser.add_argument("--looks", type=int, default=4, help="at dev, while it learns")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        found = measure(options.run, options.epochs, options.looks, options.seeds, Path(name))
    if options.json:
        print(json.dumps(found, indent=2))
        return
    measured = next(iter(found[0]["dev"][0]))
    for row in found:
        looks = ", ".join(f"{look[measured]:.3f} after {look['step']:,}" for look in row["dev"])
        print(f"{row['start']:<10} seed {row['seed']}: {measured} on dev {looks} steps")


if __name__ == "__main__":
    main()
