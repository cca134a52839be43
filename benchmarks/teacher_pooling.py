"""How a cross-encoder's pooling decides what a few hundred labels can teach it: pydocs, 320 queries x 6 documents."""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path

from limbeck.training.recipe_files import load_recipe
from limbeck.training.results import Bench
from limbeck.training.session import Session

SETTINGS = {
    "cls, BM25 negatives": {"pooling": "cls", "dropout": 0.1, "lr": 5e-5, "negatives": "bm25"},
    "mean, BM25 negatives": {"pooling": "mean", "dropout": 0.1, "lr": 2e-4, "negatives": "bm25"},
    "segments, BM25 negatives": {"pooling": "segments", "dropout": 0.0, "lr": 1e-4, "negatives": "bm25"},
    "segments, BM25 and uniform negatives": {
        "pooling": "segments",
        "dropout": 0.0,
        "lr": 5e-5,
        "negatives": "bm25+uniform",
    },
}


def measure(pooling: str, dropout: float, lr: float, negatives: str) -> float:
    overrides = [
        "data.train_queries=320",
        "data.dev_queries=50",
        "data.test_queries=120",
        f"teacher.train.pooling={pooling}",
        f"teacher.train.dropout={dropout}",
        f"teacher.stages.0.lr={lr}",
        f"teacher.stages.0.lists={{size: 6, pool: 20, negatives: {negatives}}}",
        "evaluation.depth=20",
    ]
    with tempfile.TemporaryDirectory() as folder:
        session = Session(load_recipe("demo", overrides), Path(folder))
        assert session.teacher is not None
        return Bench(session).model("teacher", "teacher", session.teacher).row.measures["ndcg@10"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    found = {}
    for name, settings in SETTINGS.items():
        found[name] = measure(**settings)
        if not options.json:
            print(f"{name:<38} nDCG@10 {found[name]:.3f}", flush=True)
    if options.json:
        print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
