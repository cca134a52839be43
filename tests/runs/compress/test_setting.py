"""What is decided before students are trained."""

from __future__ import annotations

import pytest

from limbeck.runs.compress.setting import Request, prepare
from limbeck.runtimes.auto import Choice
from limbeck.runtimes.measure import Measured


@pytest.fixture
def onnx_is_faster(monkeypatch):
    """What a measurement would find."""
    rows = (Measured("torch", 1, 2.0, 10.0, 1.0), Measured("onnx", 1, 1.0, 20.0, 1.0))
    monkeypatch.setattr(
        "limbeck.runtimes.auto.choose", lambda *_: Choice("onnx", "onnx", "texts", None, 1, ("torch", "onnx"), rows)
    )


@pytest.mark.parametrize(("kind", "size"), [("dual", 30 + 60), ("cross", 16 * 30)])
def test_the_teacher_runs_in_the_fastest_float32_runtime_if_it_has_much_to_read(
    kind, size, beir, tmp_path, request, few_steps, onnx_is_faster, monkeypatch
):
    """It reads 30 queries and 60 documents, or 16 pairs for each query."""
    asked = Request(str(request.getfixturevalue(kind)), str(beir))
    for least, runtime in ((size + 1, "torch"), (size, "onnx")):
        monkeypatch.setattr("limbeck.runtimes.job_size.TEXTS", least)
        monkeypatch.setattr("limbeck.runtimes.job_size.PAIRS", least)
        folder = tmp_path / runtime
        folder.mkdir()
        found = prepare(asked, folder, 5)
        assert found.teacher is not None and found.teacher.runtime == runtime
