"""A file of new queries: distinct, the same for the same seed, never from test queries, complete or absent."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

import limbeck as lb
from limbeck.data import load
from limbeck.data.queries import read_queries, text_key
from limbeck.errors import LimbeckError
from limbeck.generation import block_log
from limbeck.generation.perturb import Perturb
from limbeck.training.annotate import with_queries

QUERIES = {
    "q1": "copy a file",
    "q2": "sort a list",
    "q3": "open the old path",
    "t1": "close a folder now",
    "t2": "Sort  a list",  # as q2, but for case and spaces
    "d1": "read each line",
}
SPLITS = {"train": ["q1", "q2", "q3", "d1"], "dev": ["d1"], "test": ["t1", "t2"]}


def write_beir(folder: Path, splits=SPLITS, queries=QUERIES) -> Path:
    (folder / "qrels").mkdir(parents=True)
    documents = [{"_id": f"d{n}", "title": f"Page {n}", "text": f"The page {n} says this. It ends."} for n in range(9)]
    (folder / "corpus.jsonl").write_text("".join(json.dumps(line) + "\n" for line in documents))
    lines = [{"_id": key, "text": text} for key, text in queries.items()]
    (folder / "queries.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    for split, ids in splits.items():
        rows = [f"{key}\td{number}\t1" for number, key in enumerate(ids)]
        (folder / "qrels" / f"{split}.tsv").write_text("\n".join(["query-id\tcorpus-id\tscore", *rows]) + "\n")
    return folder


@pytest.fixture
def data(tmp_path) -> Path:
    return write_beir(tmp_path / "data")


def records(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_new_queries_are_near_training_queries_only(data, tmp_path):
    done = lb.generate(data, tmp_path / "near.jsonl", per_query=6)
    found = records(tmp_path / "near.jsonl")
    assert done.sources == 2 and done.held_out == 2  # q2 is a test query in other spaces, d1 one of dev
    assert {line["from"] for line in found} == {"q1", "q3"}
    assert len(found) == done.queries == 12 - done.known - done.repeated - done.empty
    assert all(set(line["text"].split()) <= set(QUERIES[line["from"]].split()) for line in found)
    keys = [text_key(line["text"]) for line in found]
    assert len(set(keys)) == len(keys) and not set(keys) & {text_key(text) for text in QUERIES.values()}
    assert all(line["_id"].startswith(f"{line['from']}-perturb-") and line["how"] == "perturb" for line in found)
    assert done.examples[0] == (QUERIES[found[0]["from"]], found[0]["text"])


def test_a_new_query_that_a_test_query_asks_is_left_out(tmp_path):
    queries = {"q1": "copy file", "t1": "File Copy", "t2": "copy", "t3": "file"}
    data = write_beir(tmp_path / "data", {"train": ["q1"], "test": ["t1", "t2", "t3"]}, queries)
    with pytest.raises(LimbeckError, match=r"no new queries from 1 queries: 8 are known already.*raise --drop"):
        lb.generate(data, tmp_path / "near.jsonl", per_query=8)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data"]


def test_the_file_is_what_a_recipe_takes_as_unlabelled_queries(data, tmp_path):
    done = lb.generate(data, tmp_path / "near.jsonl")
    both, new = with_queries(load(data), tmp_path / "near.jsonl")
    assert len(new) == done.queries and len(both.queries) == len(QUERIES) + done.queries


@pytest.mark.parametrize("split", ["test", "dev", "TEST", "validation"])
def test_queries_that_measure_a_model_are_refused(data, tmp_path, split):
    with pytest.raises(LimbeckError, match=f"--split {split}: queries that measure a model must not be trained on"):
        lb.generate(data, tmp_path / "near.jsonl", split=split)


def test_a_missing_split_is_named(data, tmp_path):
    with pytest.raises(LimbeckError, match=r"no judgements for split 'trian'; did you mean 'train'"):
        lb.generate(data, tmp_path / "near.jsonl", split="trian")


def test_without_judgements_all_queries_are_taken(tmp_path):
    data = write_beir(tmp_path / "data", {})
    (data / "qrels").rmdir()
    assert lb.generate(data, tmp_path / "near.jsonl").sources == len({text_key(text) for text in QUERIES.values()}) == 5


def test_the_same_seed_gives_the_same_file(data, tmp_path):
    for name, seed in (("one", 0), ("two", 0), ("three", 1)):
        lb.generate(data, tmp_path / f"{name}.jsonl", seed=seed)
    one, two, three = ((tmp_path / f"{name}.jsonl").read_bytes() for name in ("one", "two", "three"))
    assert one == two and one != three


def test_a_file_of_queries_is_enough(tmp_path):
    (tmp_path / "log.txt").write_text("copy a file\nsort the list\n")
    done = lb.generate(tmp_path / "log.txt", tmp_path / "near.jsonl.gz")
    assert done.sources == 2
    lines = gzip.decompress((tmp_path / "near.jsonl.gz").read_bytes()).decode().splitlines()
    assert {json.loads(line)["from"] for line in lines} == {"log-1", "log-2"}
    assert len(read_queries(tmp_path / "near.jsonl.gz")) == done.queries
    with pytest.raises(LimbeckError, match=r"--split train: .*log.txt has no splits; leave it out"):
        lb.generate(tmp_path / "log.txt", tmp_path / "other.jsonl", split="train")


def test_repeated_queries_are_read_once_and_counted(tmp_path, monkeypatch):
    (tmp_path / "log.txt").write_text("copy a file\nsort the list\nCopy  a FILE\nsort the list\n")
    said: list[str] = []
    monkeypatch.setattr("limbeck.data.queries.say", said.append)
    done = lb.generate(tmp_path / "log.txt", tmp_path / "near.jsonl", per_query=1)
    assert done.sources == 2 and [line["from"] for line in records(tmp_path / "near.jsonl")] == ["log-1", "log-2"]
    assert any("2 of 4 queries are duplicates and are left out" in line for line in said)


def test_spans_only_need_documents(data, tmp_path):
    (tmp_path / "docs.txt").write_text("Copy the file first. Then open it.\n\nSort each list by name.\n")
    (tmp_path / "alone").mkdir()
    (tmp_path / "alone" / "corpus.jsonl").write_bytes((data / "corpus.jsonl").read_bytes())
    for name, count in {"docs.txt": 2, "alone": 9, "alone/corpus.jsonl": 9, "data": 9}.items():
        out = tmp_path / f"{name.replace('/', '-')}-spans.jsonl"
        done = lb.generate(tmp_path / name, out, how="spans")
        assert (done.sources, done.noun) == (count, "documents")
        assert done.queries == len(records(out)) > 0
    documents = dict(load(data).corpus.items())
    for line in records(tmp_path / "alone-spans.jsonl"):
        assert line["text"] in documents[line["from"]]


def test_spans_are_as_long_as_training_queries(tmp_path):
    queries = {"q1": "one two three four five six seven", "t1": "one two"}
    data = write_beir(tmp_path / "data", {"train": ["q1"], "test": ["t1"]}, queries)
    long = " ".join(f"w{n}" for n in range(100))
    (data / "corpus.jsonl").write_text("".join(json.dumps({"_id": f"d{n}", "text": long}) + "\n" for n in range(50)))
    lb.generate(data, tmp_path / "spans.jsonl", how="spans")
    assert {len(line["text"].split()) for line in records(tmp_path / "spans.jsonl")} == {7, 32}


def test_the_control_draws_as_many_queries_at_random(data, tmp_path):
    others = [f"other query {n}" for n in range(50)] + ["copy a file", "close a folder now", "other  Query 3"]
    (tmp_path / "others.txt").write_text("\n".join(others))
    done = lb.generate(data, tmp_path / "random.jsonl", how="sample", draw_from=tmp_path / "others.txt", per_query=3)
    texts = [line["text"] for line in records(tmp_path / "random.jsonl")]
    assert done.queries == len(set(map(text_key, texts))) == 6 and set(texts) <= set(others)
    assert not set(texts) & set(QUERIES.values())
    again = lb.generate(
        data, tmp_path / "o.jsonl", how="sample", draw_from=tmp_path / "others.txt", per_query=3, seed=1
    )
    assert again.queries == 6 and {line["text"] for line in records(tmp_path / "o.jsonl")} != set(texts)
    titles = lb.generate(data, tmp_path / "titles.jsonl", how="sample")
    assert titles.queries == 4
    assert all(line["text"].startswith("Page") for line in records(tmp_path / "titles.jsonl"))


def test_interrupted_work_resumes_and_ends_the_same(data, tmp_path, monkeypatch):
    monkeypatch.setattr(block_log, "BLOCK", 5)
    (tmp_path / "log.txt").write_text("".join(f"copy file number {n} to folder {n * n}\n" for n in range(17)))
    lb.generate(tmp_path / "log.txt", tmp_path / "whole.jsonl")
    asked, left, original = [], 2, Perturb.write

    def write(self, rows):
        nonlocal left
        if not left:
            raise KeyboardInterrupt
        left -= 1
        asked.extend(row[0] for row in rows)
        return original(self, rows)

    monkeypatch.setattr(Perturb, "write", write)
    out, work = tmp_path / "cut.jsonl", tmp_path / "cut.jsonl.unfinished"
    with pytest.raises(KeyboardInterrupt):
        lb.generate(tmp_path / "log.txt", out)
    assert not out.exists() and work.is_dir()
    with open(work / "queries.jsonl", "ab") as handle:
        handle.write(b'{"_id": "log-12", "que')  # as a kill in the middle of a write leaves it
    with pytest.raises(LimbeckError, match=r"seed is 0 there and 4 here; choose another --out, or remove .*unfinished"):
        lb.generate(tmp_path / "log.txt", out, seed=4)
    left = 99
    done = lb.generate(tmp_path / "log.txt", out)
    assert sorted(asked) == sorted(f"log-{n}" for n in range(1, 18))  # each once
    assert out.read_bytes() == (tmp_path / "whole.jsonl").read_bytes() and not work.exists()
    asked.clear()
    assert lb.generate(tmp_path / "log.txt", out) == done and not asked


def test_a_kill_before_the_manifest_is_written_does_no_harm(data, tmp_path, monkeypatch):
    out = tmp_path / "near.jsonl"
    with monkeypatch.context() as patched:
        patched.setattr("limbeck.generation.generate.checksum", lambda _: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            lb.generate(data, out)
    assert out.exists() and (tmp_path / "near.jsonl.unfinished").exists()
    lb.generate(data, out)
    lb.generate(data, tmp_path / "other.jsonl")
    assert out.read_bytes() == (tmp_path / "other.jsonl").read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "data", "near.jsonl", "near.jsonl.manifest.json", "other.jsonl", "other.jsonl.manifest.json",
    ]  # fmt: skip


def test_a_file_of_another_user_is_not_changed(data, tmp_path):
    out = tmp_path / "near.jsonl"
    out.write_text('{"mine": 1}\n')
    with pytest.raises(
        LimbeckError, match=r"near.jsonl: exists, and `limbeck generate` did not write it; choose another"
    ):
        lb.generate(data, out)
    assert out.read_text() == '{"mine": 1}\n'
    out.unlink()
    (tmp_path / "near.jsonl.unfinished").mkdir()
    (tmp_path / "near.jsonl.unfinished" / "thesis.tex").write_text("mine")
    with pytest.raises(LimbeckError, match=r"unfinished: exists, and `limbeck generate` did not make it"):
        lb.generate(data, out)
    assert (tmp_path / "near.jsonl.unfinished" / "thesis.tex").exists()


def test_a_finished_file_is_for_the_same_request_and_unchanged(data, tmp_path):
    out = tmp_path / "near.jsonl"
    lb.generate(data, out)
    with pytest.raises(
        LimbeckError, match=r"drop is 0.2 there and 0.5 here; choose another --out, or remove .*near.jsonl"
    ):
        lb.generate(data, out, drop=0.5)
    with pytest.raises(LimbeckError, match='how is "perturb" there and "spans" here'):
        lb.generate(data, out, how="spans")
    with open(out, "a") as handle:
        handle.write("\n")
    with pytest.raises(LimbeckError, match="has changed since it was written; remove it"):
        lb.generate(data, out)
    out.unlink()
    lb.generate(data, out, drop=0.5)
    assert lb.generate(data, out, drop=0.5).queries == len(records(out))


def test_edited_queries_are_another_request(data, tmp_path):
    lb.generate(data, tmp_path / "near.jsonl")
    text = (data / "queries.jsonl").read_text().replace("copy a file", "copy a module")
    (data / "queries.jsonl").write_text(text)
    with pytest.raises(LimbeckError, match="was made with other settings"):
        lb.generate(data, tmp_path / "near.jsonl")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"how": "pertub"}, "unknown --how 'pertub'; did you mean 'perturb'"),
        ({"how": "model"}, "--how model: needs a seq2seq model; name one with --model"),
        ({"how": "spans", "model": "x"}, "--model x: requires --how model"),
        ({"noise": 0.1}, "--noise: requires --how model; leave it out"),
        ({"how": "spans", "drop": 0.1}, "--drop: requires --how perturb; leave it out"),
        ({"drop": 1.0}, "--drop 1.0: is not a share"),
        ({"swap": float("nan")}, "--swap nan: is not a share"),
        ({"how": "model", "noise": -1.0}, "--noise -1.0: is not a standard deviation"),
        ({"how": "model", "noise": float("inf")}, "--noise inf: is not a standard deviation"),
        ({"draw_from": "x"}, "--from x: requires --how sample"),
        ({"per_query": 0}, "--per-query 0: nothing would be written"),
    ],
)
def test_options_that_make_no_sense_are_one_line(data, tmp_path, options, message):
    with pytest.raises(LimbeckError) as raised:
        lb.generate(data, tmp_path / "near.jsonl", **options)
    assert message in str(raised.value)


def test_pairs_have_no_queries(tmp_path):
    (tmp_path / "pairs").mkdir()
    (tmp_path / "pairs" / "train.csv").write_text("text1,text2,label\na,b,1\nc,d,0\n")
    with pytest.raises(LimbeckError, match="contains pairs, not queries"):
        lb.generate(tmp_path / "pairs", tmp_path / "near.jsonl")
    with pytest.raises(LimbeckError, match=r"near.txt: is not a .jsonl file"):
        lb.generate(tmp_path / "pairs", tmp_path / "near.txt")
