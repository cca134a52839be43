from __future__ import annotations

import json

import pytest

from limbeck.matchers import build, matcher_config
from tests.cli.test_cli import assert_one_line_about


@pytest.fixture
def teacher(tiny_bert, tmp_path):
    lengths = {"query_length": 16, "document_length": 16}
    build(matcher_config(init_from=tiny_bert, similarity="cosine", **lengths)).save_pretrained(tmp_path / "teacher")
    return tmp_path / "teacher"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--budget", "fast"], ["--budget", "2ms"]),
        (["--keep", "most"], ["--keep", "95%"]),
        (["--minutes", "0"], ["--minutes"]),
        (["--fail-below", "loss"], ["--fail-below", "win"]),
        (["--fail-below", "mrr@10=0.3"], ["--fail-below", "ndcg@10"]),
        (["--index", "a", "--vectors", "b.npy"], ["--index", "--vectors"]),
        (["--index", "nowhere"], ["nowhere", "no such file"]),
    ],
)
def test_a_bad_option_is_one_line_and_leaves_no_folder(limbeck, teacher, beir, tmp_path, options, words):
    assert_one_line_about(limbeck("compress", teacher, beir, "--out", tmp_path / "out", *options), *words)
    assert not (tmp_path / "out").exists()


def test_pairs_are_refused(limbeck, teacher, tmp_path):
    (tmp_path / "pairs.csv").write_text("a,b,label\none,two,1\n")
    done = limbeck("compress", teacher, tmp_path / "pairs.csv", "--out", tmp_path / "out")
    assert_one_line_about(done, "pairs.csv")


def test_the_last_line_is_the_verdict_and_fail_below_sets_the_exit_code(limbeck, teacher, beir, tmp_path, monkeypatch):
    monkeypatch.setattr("limbeck.runs.compress.bench.RUNTIMES", ("torch",))
    command = ["compress", teacher, beir, "--out", tmp_path / "out", "--minutes", "0.001"]
    done = limbeck(*command)
    assert "ms/query     single queries on 1 thread, all models in turns" in done.out
    assert done.code == 0 and done.out.strip().splitlines()[-1].startswith("VERDICT: ")
    assert "2 layers: not tried: no time left" in done.out
    found = json.loads(limbeck(*command, "--json").out)
    assert (
        found["threads"] == 1 and found["recommended"] == "static" and found["verdict"]["line"].startswith("VERDICT: ")
    )
    assert limbeck(*command, "--fail-below", "ndcg@10=2").code == 1
