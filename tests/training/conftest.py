"""A BEIR folder in which a document answers the query that shares its rare words."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tests.training.toy import WORDS


@pytest.fixture
def beir(tmp_path: Path) -> Path:
    """30 queries (18 train, 6 dev, 6 test) over 60 documents."""
    generator = np.random.default_rng(11)
    folder = tmp_path / "beir"
    (folder / "qrels").mkdir(parents=True)
    documents = [" ".join(generator.choice(WORDS, size=8)) for _ in range(60)]
    with open(folder / "corpus.jsonl", "w") as handle:
        for number, text in enumerate(documents):
            handle.write(json.dumps({"_id": f"d{number}", "title": "", "text": text}) + "\n")
    with open(folder / "queries.jsonl", "w") as handle:
        for number in range(30):
            words = generator.choice(documents[number].split(), size=4)
            handle.write(json.dumps({"_id": f"q{number}", "text": " ".join(words)}) + "\n")
    for split, numbers in (("train", range(18)), ("dev", range(18, 24)), ("test", range(24, 30))):
        lines = ["query-id\tcorpus-id\tscore", *(f"q{number}\td{number}\t1" for number in numbers)]
        (folder / "qrels" / f"{split}.tsv").write_text("\n".join(lines) + "\n")
    return folder


@pytest.fixture
def recipe(beir: Path, tiny_bert: str) -> dict:
    """A whole run in a second or two: a teacher is trained, then distilled."""
    lengths = {"init_from": tiny_bert, "query_length": 8, "document_length": 16}
    return {
        "name": "tiny",
        "data": {"source": str(beir)},
        "teacher": {
            "train": {"kind": "cross_encoder", **lengths},
            "stages": [{"objectives": ["one_hot"], "steps": 2, "batch_size": 4, "lists": {"size": 4, "pool": 8}}],
        },
        "student": {"layers": 1, **lengths},
        "stages": [
            {"objectives": ["softmax_ce"], "steps": 4, "batch_size": 4, "lr": 1e-3, "lists": {"size": 4, "pool": 6}}
        ],
        "evaluation": {"depth": 10, "dev_depth": 8, "baselines": ["bm25"]},
    }
