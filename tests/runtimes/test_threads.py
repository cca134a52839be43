"""Several threads may use one model at a time, as a server does, and each gets its own outputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from limbeck.matchers import build, load, matcher_config
from limbeck.runtimes.choice import missing_package
from limbeck.runtimes.export import export_model
from limbeck.runtimes.exported import Exported
from limbeck.runtimes.sample import Sample
from limbeck.runtimes.use import in_runtime
from tests.runtimes.conftest import QUERIES, TEXTS

LONG = "how do i " * 20
TIMES = 60
installed = [name for name in ("onnx", "openvino") if missing_package(name) is None]


def together(*works: Callable[[], Any]) -> list[list[Any]]:
    """What each of these gives, many times, while the others run."""
    with ThreadPoolExecutor(len(works)) as pool:
        running = [pool.submit(lambda own=work: [own() for _ in range(TIMES)]) for work in works]
        return [each.result() for each in running]


def worst(found: Sequence[np.ndarray], exact: np.ndarray) -> float:
    return max(float(np.abs(each - exact).max()) for each in found)


@pytest.fixture(scope="module")
def folder(tiny_bert: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("threads") / "model"
    build(matcher_config(start=tiny_bert, query_length=5, document_length=40)).save_pretrained(place)
    return place


def test_an_export_reads_queries_and_documents_at_once(folder, tmp_path):
    export_model(folder, tmp_path / "export", lambda: Sample(QUERIES, TEXTS, "these texts"))
    model = Exported.load(tmp_path / "export", threads=1)
    texts = [LONG, *TEXTS]
    queries, documents = model.encode_query(texts), model.encode_document(texts)
    assert np.abs(queries[0] - documents[0]).max() > 1e-3  # of another length
    found = together(lambda: model.encode_query(texts), lambda: model.encode_document(texts))
    assert worst(found[0], queries) < 1e-6 and worst(found[1], documents) < 1e-6


@pytest.mark.parametrize("runtime", installed)
def test_a_session_runs_in_two_threads(folder, runtime):
    matcher = load(folder)
    with in_runtime(matcher, runtime):
        way = matcher.tower.single["document"]
        first, second = way(LONG), way("sort")
        found = together(lambda: way(LONG), lambda: way("sort"))
        assert worst(found[0], first) < 1e-6 and worst(found[1], second) < 1e-6
