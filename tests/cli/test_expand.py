"""`limbeck expand` as a user runs it, and as a kill -9 leaves it."""

from __future__ import annotations

import json

import pytest

from tests.cli.test_cli import assert_one_line_about
from tests.search.seq2seq import write_beir, write_t5


@pytest.fixture(scope="module")
def t5(tmp_path_factory) -> str:
    return str(write_t5(tmp_path_factory.mktemp("t5")))


def test_expand_makes_a_data_set_that_other_verbs_read(limbeck, t5, tmp_path):
    data, out = write_beir(tmp_path / "data"), tmp_path / "out"
    assert limbeck("evaluate", "bm25", data).code == 2  # no document has a word of any query
    done = json.loads(limbeck("expand", data, "--model", t5, "--out", out, "--top-k", 5, "--json").out)
    kept = sum(len(json.loads(line)["queries"]) for line in (out / "expansions.jsonl").read_text().splitlines())
    assert done == {"out": str(out), "documents": 24, "kept": kept, "generated": 24}
    assert 110 <= kept <= 120  # some may come out empty
    assert json.loads(limbeck("evaluate", "bm25", out, "--json").out)["measures"]["recall@100"] > 0.8
    again = limbeck("expand", data, "--model", t5, "--out", out, "--top-k", 5)
    assert again.out == f"{out}: {kept} queries behind 24 documents; queries of 0 documents are new\n"


def test_mistakes_are_one_line(limbeck, t5, tiny_bert, tmp_path):
    data, out = write_beir(tmp_path / "data"), tmp_path / "out"
    assert_one_line_about(limbeck("expand", data, "--model", tiny_bert, "--out", out), tiny_bert, "not a seq2seq model")
    assert_one_line_about(limbeck("expand", data, "--model", tmp_path / "no", "--out", out), "no such folder")
    assert_one_line_about(limbeck("expand", tmp_path / "no", "--model", t5, "--out", out), "no such file or folder")
    assert_one_line_about(limbeck("expand", data, "--model", t5, "--out", out, "--keep", 0.5), "--filter")
    assert_one_line_about(limbeck("expand", data, "--model", t5, "--out", data), str(data), "limbeck did not write it")
    assert_one_line_about(limbeck("expand", data, "--out", out), "--model")
    limbeck("expand", data, "--model", t5, "--out", out)
    other = limbeck("expand", data, "--model", t5, "--out", out, "--seed", 7)
    assert_one_line_about(other, str(out), "seed is 0 there and 7 here")
