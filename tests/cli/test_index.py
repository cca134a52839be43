from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from limbeck.matchers import build, matcher_config
from tests.cli.test_cli import assert_one_line_about


@pytest.fixture
def models(tiny_bert: str, tmp_path: Path) -> dict[str, Path]:
    lengths = {"start": tiny_bert, "query_length": 8, "document_length": 16, "similarity": "cosine"}
    for name, layers in (("dual", 1), ("other", 2)):
        build(matcher_config(**lengths, layers=layers)).save_pretrained(tmp_path / name)
    build(matcher_config(start=tiny_bert, kind="cross_encoder", document_length=16)).save_pretrained(tmp_path / "cross")
    return {name: tmp_path / name for name in ("dual", "other", "cross")}


@pytest.fixture
def index(limbeck, models, beir, tmp_path) -> Path:
    done = limbeck("index", models["dual"], beir, "--out", tmp_path / "index")
    assert done.code == 0, done
    return tmp_path / "index"


def test_index_says_what_it_made(limbeck, models, beir, index, tmp_path):
    again = limbeck("index", models["dual"], beir, "--out", index)  # complete already
    assert again.code == 0
    for words in (
        "60 passages",
        "flat, 60 vectors of 32 numbers, exact",
        "BM25, english, k1 0.9, b 0.4",
        "limbeck search",
    ):
        assert words in again.out
    facts = json.loads(
        limbeck("index", models["dual"], beir, "--out", tmp_path / "graph", "--kind", "hnsw", "--json").out
    )
    assert facts["dense"]["kind"] == "hnsw" and facts["dense"]["recall"] > 0.8
    assert facts["dense"]["measured_with"] == "queries" and facts["bytes"]["dense"] > 60 * 32 * 4


def test_search_shows_passages_scores_and_who_found_them(limbeck, index):
    done = limbeck("search", index, "copy", "the", "file", "--k", "3")
    assert done.code == 0, done
    heads = [line for line in done.out.splitlines() if line[:3].strip().isdigit()]
    assert [line.split()[0] for line in heads] == ["1", "2", "3"]
    assert all(line.split()[2].startswith("d") and "dense #" in line for line in heads)
    assert "*copy*" in done.out or "*file*" in done.out
    explained = limbeck("search", index, "copy the file", "--k", "3", "--explain").out
    assert explained.count("dense   ") == explained.count("sparse  ") == 3 and "copi " in explained
    sparse = limbeck("search", index, "copy the file", "--mode", "sparse").out
    assert "sparse #1" in sparse and "dense" not in sparse
    found = json.loads(limbeck("search", index, "copy the file", "--k", "2", "--json", "--explain").out)
    assert [hit["rank"] for hit in found["hits"]] == [1, 2] and found["mode"] == "hybrid"
    assert set(found["hits"][0]) >= {"id", "score", "title", "text", "fields", "dense", "sparse", "terms"}


def test_without_a_query_lines_are_answered_one_by_one(limbeck, index, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.StringIO("copy the file\n\nof the\nsort a list\n"))
    done = limbeck("search", index, "--mode", "sparse", "--k", "1")
    assert done.code == 0
    assert done.out.count("sparse #1") == 2 and "no words to search for" in done.out


def test_at_a_terminal_there_is_a_prompt_and_a_mistake_does_not_end_it(limbeck, index, monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr(sys, "stdin", Terminal("copy the file\n\nsort a list\n"))
    done = limbeck("search", index, "--k", "1")
    assert done.code == 0
    assert done.out.count("search> ") == 4 and done.out.count("dense #") == 2 and "Ctrl-D ends" in done.err


def test_a_file_of_queries_becomes_a_run_and_a_table_of_times(limbeck, index, beir, tmp_path):
    queries = beir / "queries.jsonl"
    done = limbeck("search", index, "--queries", queries, "--run", tmp_path / "out.trec", "--mode", "dense")
    assert done.code == 0, done
    measured = json.loads(limbeck("evaluate", tmp_path / "out.trec", beir, "--json").out)["measures"]
    for options in (["--mode", "dense"], []):
        found = json.loads(limbeck("evaluate", index, beir, "--json", *options).out)
        assert found["task"] == "retrieve" and found["ms_per_query"] > 0 and found["size_mb"] > 0
        assert (found["measures"] == pytest.approx(measured)) == bool(options)
    table = limbeck("search", index, "--queries", queries, "--timings")
    for stage in ("encode", "dense", "sparse", "fusion", "total", "ms p99", "bytes/passage"):
        assert stage in table.out
    timings = json.loads(limbeck("search", index, "--queries", queries, "--timings", "--json").out)["timings"]
    assert timings["queries"] == 30 and timings["bytes_per_passage"]["dense"] == pytest.approx(128, abs=2)
    assert [stage["name"] for stage in timings["stages"]] == ["encode", "dense", "sparse", "fusion", "total"]


def test_an_index_agrees_with_exact_evaluation_of_its_model(limbeck, index, models, beir):
    by_index = json.loads(limbeck("evaluate", index, beir, "--mode", "dense", "--json").out)
    by_model = json.loads(limbeck("evaluate", models["dual"], beir, "--json").out)
    assert by_index["measures"] == pytest.approx(by_model["measures"])
    by_words = json.loads(limbeck("evaluate", index, beir, "--mode", "sparse", "--json").out)
    assert by_words["measures"] == pytest.approx(
        json.loads(limbeck("evaluate", "bm25", beir, "--json").out)["measures"]
    )


def test_two_ways_to_search_one_index_are_compared(limbeck, index, beir):
    alone = {
        mode: json.loads(limbeck("evaluate", index, beir, "--mode", mode, "--json").out)["measures"]
        for mode in ("hybrid", "sparse")
    }
    done = limbeck(
        "evaluate", index, beir, "--mode", "hybrid", "--against", index, "--against-mode", "sparse", "--json"
    )
    found = json.loads(done.out)
    assert found["measures"] == alone["hybrid"]
    for test in found["comparisons"]:
        assert alone["hybrid"][test["measure"]] - test["difference"] == pytest.approx(alone["sparse"][test["measure"]])
    how = ["--alpha", "0.3", "--against", index, "--against-fusion", "rrf"]
    (test, *_) = json.loads(limbeck("evaluate", index, beir, *how, "--json").out)["comparisons"]
    weighted = json.loads(limbeck("evaluate", index, beir, "--alpha", "0.3", "--json").out)["measures"]
    assert weighted["ndcg@10"] - test["difference"] == pytest.approx(alone["hybrid"]["ndcg@10"])
    same = limbeck("evaluate", index, beir, "--mode", "dense", "--against", index)
    assert_one_line_about(same, "is searched in the same way", "add --against-mode")
    other = limbeck("evaluate", index, beir, "--against", "bm25", "--against-mode", "dense")
    assert_one_line_about(other, "--against-mode: requires an index")


def test_passages_are_added_deleted_and_compacted(limbeck, index, tmp_path):
    new = {"_id": "new", "text": "page line name old", "lang": "en", "year": 2021}
    (tmp_path / "new.jsonl").write_text(json.dumps(new) + "\n")
    assert "61 passages in 2 segments" in limbeck("index", "--out", index, "--add", tmp_path / "new.jsonl").out
    found = json.loads(limbeck("search", index, "page line name old", "--where", "year>=2020", "--json").out)
    assert [hit["id"] for hit in found["hits"]] == ["new"] and found["hits"][0]["fields"] == {
        "lang": "en",
        "year": 2021,
    }
    (tmp_path / "gone.txt").write_text("d0\nd1\n")
    assert (
        "59 passages in 2 segments, 2 deleted"
        in limbeck("index", "--out", index, "--delete", tmp_path / "gone.txt").out
    )
    done = limbeck("index", "--out", index, "--compact", "--verify")
    assert done.code == 0 and "59 passages\n" in done.out and "lang, year" in done.out


def test_nothing_is_deleted_for_the_sake_of_passages_that_cannot_be_read(limbeck, index, tmp_path):
    (tmp_path / "gone.txt").write_text("d0\n")
    (tmp_path / "broken.jsonl").write_text('{"_id": "n1", "text": \n')
    both = limbeck("index", "--out", index, "--delete", tmp_path / "gone.txt", "--add", tmp_path / "broken.jsonl")
    assert_one_line_about(both, "broken.jsonl:1")
    assert "60 passages\n" in limbeck("index", "--out", index, "--verify").out


def test_results_are_not_written_over_what_is_read(limbeck, index, beir, tmp_path):
    queries = (beir / "queries.jsonl").read_bytes()
    for place in (beir / "queries.jsonl", index / "index.json"):
        done = limbeck("search", index, "--queries", beir / "queries.jsonl", "--run", place)
        assert_one_line_about(done, place.name, "which the command reads")
    assert_one_line_about(limbeck("tune", index, beir, "--out", index / "index.json"), "which the command reads")
    assert_one_line_about(limbeck("evaluate", index, beir, "--run", beir / "corpus.jsonl"), "which the command reads")
    assert (beir / "queries.jsonl").read_bytes() == queries and limbeck("search", index, "copy").code == 0


def test_an_index_whose_model_is_missing_or_damaged_raises_an_error(limbeck, index):
    config = index / "model" / "config.json"
    config.write_text(config.read_text().replace("intermediate_size", "intermediate_si{e"))
    assert_one_line_about(limbeck("search", index, "copy"), "model", "build the index again")
    shutil.rmtree(index / "model")
    assert_one_line_about(limbeck("search", index, "copy"), "model", "is missing", "build the index again")


def test_several_queries_are_a_line_of_json_each(limbeck, index, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO("copy the file\nsort a list\n"))
    lines = limbeck("search", index, "--json").out.splitlines()
    assert [json.loads(line)["query"] for line in lines] == ["copy the file", "sort a list"]


def test_changed_fields_are_another_index(limbeck, tmp_path):
    passages = [{"_id": f"d{n}", "text": f"copy file {n}", "lang": "en"} for n in range(3)]
    command = ["index", tmp_path / "p.jsonl", "--no-dense", "--out", tmp_path / "index"]
    for lang, code in (("en", 0), ("en", 0), ("de", 2)):
        passages[1]["lang"] = lang
        (tmp_path / "p.jsonl").write_text("".join(json.dumps(passage) + "\n" for passage in passages))
        assert limbeck(*command).code == code


def test_an_index_with_only_bm25_needs_no_model(limbeck, beir, tmp_path):
    assert limbeck("index", beir, "--no-dense", "--out", tmp_path / "words").code == 0
    assert limbeck("search", tmp_path / "words", "copy the file").code == 0
    assert_one_line_about(limbeck("search", tmp_path / "words", "copy", "--mode", "dense"), "has no dense part")


def test_a_users_mistakes_are_one_line_and_exit_code_2(limbeck, index, models, beir, tmp_path):
    def refused(*arguments, words):
        assert_one_line_about(limbeck(*arguments), *words)

    refused("search", index, "copy", "--alpha", "much", words=["--alpha", "valid number"])
    refused("search", index, "copy", "--alpha", "nan", words=["alpha is nan"])
    refused("search", index, "copy", "--fusion", "interpolate", words=["has no alpha yet", "limbeck tune"])
    refused("search", index, "copy", "--mode", "dense", "--alpha", "0.1", words=["require a hybrid search"])
    refused("search", index, "copy", "--k", "0", words=["--k"])
    refused("search", index, "of the", "--mode", "sparse", words=["no words to search for"])
    refused("search", index, "xylophone", "--mode", "sparse", words=["no word of the query is in the index"])
    refused("search", index, " ", words=["a query is empty"])
    refused("search", index, "copy", "--where", "lang=en", words=["no passage has a field 'lang'"])
    refused("search", index, "--timings", words=["--queries"])
    refused("search", tmp_path / "absent", "copy", words=["absent: no such folder"])
    refused("index", models["dual"], beir, "--out", tmp_path / "x", "--kind", "flatt", words=["did you mean 'flat'"])
    refused("index", models["dual"], beir, "--out", tmp_path / "x", "--b", "2", words=["b is 2.0"])
    refused("index", models["dual"], beir, "--out", tmp_path / "x", "--language", "klingon", words=["klingon"])
    refused("index", models["cross"], beir, "--out", tmp_path / "x", words=["is a cross_encoder"])
    refused("index", models["other"], beir, "--out", index, words=["with another model"])
    refused("index", models["other"], "--out", index, "--add", beir, words=["is not the one that", "was built with"])
    refused("index", "--out", index, "--add", beir, "--kind", "hnsw", words=["--kind", "in an existing index"])
    refused(
        "index", "--out", index, "--add", beir, "--expansions", beir, words=["--expansions", "in an existing index"]
    )
    refused("index", "--out", index, "--compact", "--no-sparse", words=["--no-sparse", "in an existing index"])
    refused("index", models["dual"], "--out", tmp_path / "x", words=["nothing to do"])
    refused("index", "--out", tmp_path / "x", "--compact", words=["x: no such folder"])
    (tmp_path / "empty.jsonl").write_text("")
    refused("index", models["dual"], tmp_path / "empty.jsonl", "--out", tmp_path / "x", words=["contains no document"])
    refused("evaluate", index, beir, "--task", "rerank", words=["is an index, which can only retrieve"])
    refused("evaluate", models["dual"], beir, "--mode", "dense", words=["requires an index"])
    refused("evaluate", models["dual"], beir, "--alpha", "0.1", words=["requires an index", "--alpha"])
    refused("evaluate", index, beir, "--mode", "dense", "--fusion", "rrf", words=["require a hybrid search"])
    refused("evaluate", index, beir, "--candidates", "bm25", words=["--candidates bm25"])
    assert not (tmp_path / "x").exists()


def test_a_damaged_index_is_named_on_one_line(limbeck, index, models):
    (victim,) = index.glob("segments/*/dense.faiss")
    content = victim.read_bytes()
    victim.write_bytes(content[:-100])
    assert_one_line_about(limbeck("search", index, "copy"), "dense.faiss: is damaged", "build the index again")
    victim.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    assert_one_line_about(limbeck("search", index, "copy"), "dense.faiss: is damaged", "build the index again")
    victim.write_bytes(content)
    shutil.rmtree(index / "model")
    shutil.copytree(models["other"], index / "model")
    assert_one_line_about(limbeck("search", index, "copy"), "model is not the one that", "was built with")
    record = json.loads((index / "index.json").read_text())
    (index / "index.json").write_text(json.dumps(record | {"version": 99}))
    assert_one_line_about(limbeck("search", index, "copy"), "newer limbeck", "update limbeck")


@pytest.mark.full
def test_vectors_in_a_milvus_file_are_found_by_the_next_process(models, beir, tmp_path):
    pytest.importorskip("milvus_lite", reason="needs the extra milvus")
    store = f"milvus://{tmp_path}/vectors.db"
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}

    def run(*arguments):
        return subprocess.run(
            [sys.executable, "-m", "limbeck", *map(str, arguments)],
            capture_output=True,
            text=True,
            env=environment,
            check=False,
        )

    built = run("index", models["dual"], beir, "--out", tmp_path / "index", "--store", store)
    assert built.returncode == 0 and f"in {store}" in built.stdout, built.stderr
    refused = run("search", tmp_path / "index", "copy the file", "--k", "2", "--mode", "dense")
    assert refused.returncode == 2 and f"add --milvus {store}, or set LIMBECK_MILVUS" in refused.stderr
    found = run("search", tmp_path / "index", "copy the file", "--k", "2", "--mode", "dense", "--milvus", store)
    assert found.returncode == 0 and "dense #1" in found.stdout, found.stderr
    assert "Traceback" not in built.stderr + found.stderr
    taken = run("index", models["other"], beir, "--out", tmp_path / "second", "--store", store)
    assert taken.returncode == 2 and "has a collection that belongs to another index" in taken.stderr
    assert not (tmp_path / "second").exists()
