"""A small corpus with fields, and tiny dual encoders to index it with."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from limbeck.data.passages import Passages
from limbeck.data.texts import Texts
from limbeck.matchers import DualEncoder, build, matcher_config
from tests.conftest import WORDS


def make_corpus(count: int, seed: int = 5, longest: int = 12) -> dict[str, str]:
    generator = np.random.default_rng(seed)
    texts = [" ".join(generator.choice(WORDS, size=generator.integers(3, longest))) for _ in range(count)]
    return {f"p{seed}-{number}": text for number, text in enumerate(texts)}


def passages_of(texts: dict[str, str], name: str = "tiny") -> Passages:
    return Passages(name, Texts.from_dict(texts))


@pytest.fixture(scope="session")
def dot_model(tiny_bert: str) -> DualEncoder:
    return build(matcher_config(start=tiny_bert, layers=1, query_length=8, document_length=16, similarity="dot"))


@pytest.fixture(scope="session")
def model(tiny_bert: str) -> DualEncoder:
    return build(matcher_config(start=tiny_bert, layers=1, query_length=8, document_length=16, similarity="cosine"))


@pytest.fixture(scope="session")
def other_model(tiny_bert: str) -> DualEncoder:
    return build(matcher_config(start=tiny_bert, layers=2, query_length=8, document_length=16, similarity="cosine"))


@pytest.fixture
def corpus() -> dict[str, str]:
    return make_corpus(90)


@pytest.fixture
def write_corpus(tmp_path: Path) -> Callable[..., Path]:
    """Write passages as a jsonl file; `fields` gives the further keys of a line by its number."""

    def write(texts: dict[str, str], name: str = "corpus.jsonl", fields: Callable[[int], dict] = lambda _: {}) -> Path:
        path = tmp_path / name
        with open(path, "w") as handle:
            for number, (key, text) in enumerate(texts.items()):
                handle.write(json.dumps({"_id": key, "title": "", "text": text, **fields(number)}) + "\n")
        return path

    return write
