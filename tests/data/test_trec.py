import gzip
from pathlib import Path

import pytest

from limbeck.data.trec import read_qrels, read_run, write_qrels, write_run
from limbeck.errors import LimbeckError
from tests.data.folders import write

RUN = {"q1": {"d1": 0.1 + 0.2, "d2": -1e-30}, "q2": {"d9": 12345.678, "d1": 12345.678}}


@pytest.mark.parametrize("name", ["a.trec", "a.trec.gz"])
def test_a_run_reads_back_unchanged(tmp_path: Path, name: str) -> None:
    write_run(RUN, tmp_path / name, tag="bm25")
    assert read_run(tmp_path / name) == RUN


def test_a_run_is_written_as_trec_eval_reads_it(tmp_path: Path) -> None:
    write_run(RUN, tmp_path / "a.trec.gz", tag="bm25")
    with gzip.open(tmp_path / "a.trec.gz", "rt") as handle:
        written = handle.read().splitlines()
    assert written[0] == "q1 Q0 d1 1 0.30000000000000004 bm25"
    assert written[2:] == ["q2 Q0 d9 1 12345.678 bm25", "q2 Q0 d1 2 12345.678 bm25"]  # of equal scores the greater id


def test_judgements_read_back_unchanged(tmp_path: Path) -> None:
    qrels = {"q1": {"d1": 3, "d2": 0, "d3": -1}}
    write_qrels(qrels, tmp_path / "a.qrels.gz")
    assert read_qrels(tmp_path / "a.qrels.gz") == qrels


def test_the_same_judgement_twice_is_one(tmp_path: Path) -> None:
    assert read_qrels(write(tmp_path / "a.tsv", "q1\td1\t1\nq1\td1\t1\n")) == {"q1": {"d1": 1}}


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("q1 Q0 d2 2 nan x", "score is nan"),
        ("q1 Q0 d2 2 -inf x", "score is -inf"),
        ("q1 Q0 d2 2 1e999 x", "score is inf"),
        ("q1 Q0 d2 2 high x", "score 'high' is not a number"),
        ("q1 Q0 d1 2 0.5 x", "document 'd1' is twice in the list of query 'q1'"),
        ("q1 Q0 d1 2 0.5", "has 5 fields, not the 6"),
    ],
)
def test_a_bad_line_of_a_run_is_named(tmp_path: Path, line: str, problem: str) -> None:
    file = write(tmp_path / "a.trec", f"q1 Q0 d1 1 0.9 x\n\n{line}\n")
    with pytest.raises(LimbeckError, match=problem) as caught:
        read_run(file)
    assert str(caught.value).startswith(f"{file}:3: ")


def test_an_empty_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LimbeckError, match="contains no run"):
        read_run(write(tmp_path / "a.trec", "\n"))


@pytest.mark.parametrize("run", [{"q": {"d": float("nan")}}, {"q": {"d": float("inf")}}, {"q 1": {"d": 1.0}}])
def test_what_cannot_be_written_leaves_no_file(tmp_path: Path, run: dict[str, dict[str, float]]) -> None:
    with pytest.raises(LimbeckError):
        write_run({"good": {"d": 1.0}, **run}, tmp_path / "a.trec")
    assert list(tmp_path.iterdir()) == []
