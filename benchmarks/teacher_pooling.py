"""How well a cross-encoder learns from a few hundred labels, by pooling: pydocs, 270 queries x 5 documents, on dev.

Every pooling gets the same pairs and the same two learning rates; nothing here looks at a test query.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path

from limbeck.matchers import build, matcher_config
from limbeck.recipe.files import load_recipe
from limbeck.runs.ranking_task import RankingTask
from limbeck.runs.teacher_step import prepare_teacher

SIZE = [
    "data.train_queries=720",
    "data.dev_queries=150",
    "evaluation.dev_depth=20",
    "teacher.train.query_length=16",
    "teacher.train.document_length=48",
    "teacher.stages.0.epochs=0.375",  # 270 of the 720 queries
    "teacher.stages.0.lists.size=5",
]
RATES = (1e-4, 2e-4)
POOLINGS = {"cls": 0.1, "mean": 0.1, "segments": 0.0}  # with the dropout on the pooled output


def trained(pooling: str, dropout: float, lr: float) -> float:
    overrides = [
        *SIZE,
        f"teacher.train.pooling={pooling}",
        f"teacher.train.dropout={dropout}",
        f"teacher.stages.0.lr={lr}",
    ]
    with tempfile.TemporaryDirectory() as folder:
        session = RankingTask(load_recipe("defense-laptop", overrides), Path(folder))
        teacher = prepare_teacher(session)
        assert teacher is not None and session.judged_dev is not None
        return session.judged_dev(teacher)["ndcg@10"]


def untrained() -> dict[str, float]:
    """The untrained start: as a dual encoder, and as the cross-encoder that starts from it."""
    session = RankingTask(load_recipe("defense-laptop", SIZE), Path())
    assert session.judged_dev is not None
    teacher = session.recipe.teacher
    assert teacher is not None and teacher.train is not None
    lengths = {"query_length": teacher.train.query_length, "document_length": teacher.train.document_length}
    dual = build(matcher_config(similarity="cosine", **lengths))
    joint = build(teacher.train.model_copy(update={"pooling": "segments"}))
    return {
        "dual encoder, as it is": session.judged_dev(dual)["ndcg@10"],
        "segments, untrained": session.judged_dev(joint)["ndcg@10"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    found = untrained()
    for pooling, dropout in POOLINGS.items():
        for lr in RATES:
            found[f"{pooling}, lr {lr:g}"] = trained(pooling, dropout, lr)
            if not options.json:
                print(f"{pooling}, lr {lr:g}: nDCG@10 {found[f'{pooling}, lr {lr:g}']:.3f}", flush=True)
    if options.json:
        print(json.dumps(found, indent=2))
    else:
        print(*(f"{name}: nDCG@10 {value:.3f}" for name, value in list(found.items())[:2]), sep="\n")


if __name__ == "__main__":
    main()
