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


@pytest.mark.parametrize(
    ("shared", "told"),
    [
        (0, None),
        (1, None),
        (2, "33% of the documents that are relevant for test queries"),
        (6, "100% of the documents"),
    ],
)
def test_labels_of_documents_that_training_knows_are_named(shared, told, dual, beir, tmp_path, few_steps, monkeypatch):
    """Queries 24 to 29 are those of test; each has one document."""
    monkeypatch.setattr("limbeck.runs.compress.candidates.FEWEST_LABELS", 10)
    rows = [f"q{number}\td{number - 24 if number - 24 < shared else number}\t1" for number in range(24, 30)]
    (beir / "qrels" / "test.tsv").write_text("\n".join(["query-id\tcorpus-id\tscore", *rows]) + "\n")
    (tmp_path / "out").mkdir()
    found = prepare(Request(str(dual), str(beir)), tmp_path / "out", 5)
    lines = [line for line in found.task.warnings if "relevant for training queries as well" in line]
    assert lines == [] if told is None else lines[0].startswith(told)


def test_nothing_is_said_of_labels_from_which_no_student_learns(dual, beir, tmp_path, few_steps):
    (beir / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\nq24\td0\t1\nq25\td1\t1\n")
    (tmp_path / "out").mkdir()
    found = prepare(Request(str(dual), str(beir)), tmp_path / "out", 5)
    assert not any("relevant for training" in line for line in found.task.warnings)
