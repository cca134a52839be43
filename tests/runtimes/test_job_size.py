"""A job is as long as what its model runs: pairs for a cross-encoder, texts for what encodes them apart."""

from __future__ import annotations

import gzip
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from limbeck.data.records import count_records
from limbeck.matchers import build, matcher_config
from limbeck.matchers.base import Matcher
from limbeck.runtimes.job_size import annotated_in, evaluated_in, is_long, listed_in, passages_in


def built(kind: str, start: str) -> Matcher:
    return build(matcher_config(kind=kind, start=start, query_length=8, document_length=16, layers=1))


@pytest.fixture
def cross(tiny_bert: str) -> Matcher:
    return built("cross_encoder", tiny_bert)


@pytest.fixture
def dual(tiny_bert: str) -> Matcher:
    return built("dual_encoder", tiny_bert)


def write_list(path: Path, count: int) -> Path:
    path.write_text("text_a,text_b,label\n" + "copy a file,sort a list,1\n" * count)
    return path


def test_a_job_of_a_cross_encoder_is_as_long_as_its_pairs(cross, beir, tmp_path):
    sizes = [evaluated_in(cross, beir, "dev", 5), evaluated_in(cross, beir, "dev", 100, limit=2)]
    assert sizes == [30, 120]  # 6 queries, 5 candidates each; 2 queries, all 60 documents
    assert evaluated_in(cross, beir, "no such split", 5) == 0
    assert listed_in(cross, None, beir, beir) == 60 * 60  # every left text with every right one
    pairs = write_list(tmp_path / "pairs.csv", 400)
    assert listed_in(cross, pairs) == 400
    assert evaluated_in(cross, pairs, "train", 100, limit=7) == 7


def test_a_job_of_a_dual_encoder_is_as_long_as_its_texts(dual, beir, tmp_path):
    assert passages_in(beir) == 60
    assert evaluated_in(dual, beir, "dev", 5) == 6 + 30
    assert evaluated_in(dual, beir, "dev", 100) == 6 + 60  # each document is encoded once
    assert evaluated_in(dual, beir, "dev", 5, whole=True) == 6 + 60
    assert listed_in(dual, None, beir, beir) == 60 + 60
    pairs = write_list(tmp_path / "pairs.csv", 400)
    assert listed_in(dual, pairs) == 2
    assert listed_in(dual, pairs, beir, beir) == 120
    assert evaluated_in(dual, pairs, "train", 100) == 2


def test_a_job_is_long_from_fewer_pairs_than_texts(cross, dual):
    """A pair takes longer than a text."""
    assert [is_long(cross, count) for count in (4_999, 5_000)] == [False, True]
    assert [is_long(dual, count) for count in (9_999, 10_000)] == [False, True]


def test_annotating_is_as_long_as_all_its_pairs(beir, tmp_path):
    queries = tmp_path / "queries.jsonl"
    queries.write_text('{"_id": "q", "text": "copy the file"}\n{"_id": "p", "text": "sort a list"}\n')
    assert annotated_in(beir, "dev", 5) == 30 and annotated_in(beir, "all", 5) == 150
    assert annotated_in(beir, "dev", 100, queries) == (6 + 2) * 60


def test_rows_of_every_kind_of_file_are_counted(tmp_path):
    columns = {"text_a": ["copy a file"] * 9, "text_b": ["sort a list"] * 9}
    pq.write_table(pa.table(columns), tmp_path / "pairs.parquet", compression="zstd")
    rows = '{"text_a": "copy a file", "text_b": "sort a list"}\n' * 9
    (tmp_path / "pairs.jsonl.gz").write_bytes(gzip.compress(rows.encode()))
    (tmp_path / "pairs.jsonl").write_text(rows.rstrip("\n"))
    write_list(tmp_path / "pairs.csv", 9)
    names = ("pairs.parquet", "pairs.jsonl.gz", "pairs.jsonl", "pairs.csv")
    assert [count_records(tmp_path / name) for name in names] == [9] * 4
