"""A tiny teacher, and few steps."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import limbeck as lb
from limbeck.matchers import build, matcher_config
from tests.training.conftest import beir  # noqa: F401  (fixture)


@pytest.fixture
def few_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rungs of 2, 4 and 8 steps, no runtime but torch, and no MiniLM."""
    monkeypatch.setattr("limbeck.runs.compress.run.has_minilm", lambda: False)
    monkeypatch.setattr("limbeck.runs.compress.candidates.FEWEST_STEPS", 2)
    monkeypatch.setattr("limbeck.runs.compress.candidates.MOST_STEPS", 2)
    monkeypatch.setattr("limbeck.runs.compress.bench.RUNTIMES", ("torch",))


@pytest.fixture
def dual(tiny_bert: str, tmp_path: Path) -> Path:
    """A dual encoder of 3 layers and 24 numbers per text."""
    torch.manual_seed(3)
    lengths = {"query_length": 16, "document_length": 16}
    build(matcher_config(init_from=tiny_bert, dim=24, **lengths)).save_pretrained(tmp_path / "dual")
    return tmp_path / "dual"


@pytest.fixture
def cross(tiny_bert: str, tmp_path: Path) -> Path:
    """A cross-encoder of 3 layers."""
    torch.manual_seed(4)
    lengths = {"query_length": 16, "document_length": 16}
    build(matcher_config("cross_encoder", init_from=tiny_bert, **lengths)).save_pretrained(tmp_path / "cross")
    return tmp_path / "cross"


@pytest.fixture
def scores(cross: Path, beir: Path, tmp_path: Path) -> Path:  # noqa: F811
    """The scores that the cross-encoder gives to BM25's candidates."""
    lb.annotate(cross, beir, tmp_path / "scores", depth=20)
    return tmp_path / "scores"
