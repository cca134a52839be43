"""Expansion: resumable, filtered by a teacher, and an ordinary data set in the end."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from limbeck.data import load
from limbeck.data.passages import load_passages
from limbeck.errors import LimbeckError
from limbeck.evaluation import evaluate_run
from limbeck.generation import block_log
from limbeck.matchers import build, matcher_config
from limbeck.matchers import load as load_matcher
from limbeck.search import expand
from limbeck.search.doc2query import QueryGenerator, Sampling
from limbeck.search.expand import expand_data
from limbeck.search.expansions import expanded, read_expansions
from limbeck.search.sparse import bm25_candidates
from tests.search.seq2seq import write_beir, write_t5

HOW = Sampling(per_document=3, top_k=5, max_length=6)


@pytest.fixture(scope="module")
def t5(tmp_path_factory) -> str:
    return str(write_t5(tmp_path_factory.mktemp("t5")))


@pytest.fixture
def data(tmp_path) -> Path:
    return write_beir(tmp_path / "data")


@pytest.fixture
def teacher(tiny_bert, tmp_path) -> str:
    spec = matcher_config(kind="cross_encoder", start=tiny_bert, query_length=8, document_length=16)
    build(spec).save_pretrained(tmp_path / "teacher")
    return str(tmp_path / "teacher")


def records(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_documents_are_found_by_words_that_only_their_queries_have(t5, data, tmp_path):
    done = expand_data(str(data), t5, tmp_path / "out", HOW)
    assert (done.documents, done.kept, done.generated) == (24, 72, 24)
    before, after = load(data), load(tmp_path / "out")
    assert list(after.corpus) == list(before.corpus) and dict(after.queries.items()) == dict(before.queries.items())
    assert after.qrels == before.qrels
    first = records(tmp_path / "out" / "expansions.jsonl")[0]
    assert after.corpus["d0"] == " ".join([before.corpus["d0"], *first["queries"]])
    measured = [  # without expansion no query finds anything; one wrong document makes that a run
        evaluate_run(bm25_candidates(each, list(each.queries)) | {"q0": {"d1": 0.0}}, each.qrels["test"])["recall@100"]
        for each in (before, after)
    ]
    assert measured[0] == 0.0 and measured[1] > 0.8


def test_fields_of_passages_are_kept(t5, data, tmp_path):
    passages = records(data / "corpus.jsonl")
    passages[1] |= {"lang": "en", "meta": {"year": 2020}, "tags": ["a", "b"]}
    (data / "corpus.jsonl").write_text("".join(json.dumps(passage) + "\n" for passage in passages))
    expand_data(str(data), t5, tmp_path / "out", HOW)
    assert load_passages(tmp_path / "out").fields == load_passages(data).fields
    assert set(records(tmp_path / "out" / "corpus.jsonl")[0]) == {"_id", "title", "text"}


def test_only_the_sparse_part_uses_expansions(t5, data, tmp_path):
    expand_data(str(data), t5, tmp_path / "out", HOW)
    corpus = load(data).corpus
    behind = expanded(corpus, read_expansions(tmp_path / "out" / "expansions.jsonl"))
    assert dict(behind.items()) == dict(load(tmp_path / "out").corpus.items())
    (tmp_path / "some.jsonl").write_text('{"_id": "d2", "queries": ["copy that", "and this"]}\n')
    some = expanded(corpus, read_expansions(tmp_path / "some.jsonl"))
    assert some["d2"] == corpus["d2"] + " copy that and this" and some["d1"] == corpus["d1"]


class Cut(Exception):
    """A crash, as seen from inside."""


def test_interrupted_work_resumes_and_ends_the_same(t5, data, tmp_path, monkeypatch):
    monkeypatch.setattr(block_log, "BLOCK", 10)
    expand_data(str(data), t5, tmp_path / "whole", HOW, batch_size=4)
    plain, asked = QueryGenerator.generate, []

    def failing(self, ids, texts, how):
        if len(asked) % 3 == 2:
            asked.append(())
            raise Cut
        asked.append(tuple(ids))
        return plain(self, ids, texts, how)

    monkeypatch.setattr(QueryGenerator, "generate", failing)
    cuts = 0
    while True:
        try:
            expand_data(str(data), t5, tmp_path / "cut", HOW, batch_size=4)
            break
        except Cut:
            cuts += 1
            assert not (tmp_path / "cut" / "corpus.jsonl").exists()
            with open(tmp_path / "cut" / "samples.jsonl", "ab") as handle:
                handle.write(b'{"_id": "d5", "que')  # as a kill in the middle of a write leaves it
    generated = [key for ids in asked for key in ids]
    assert cuts == 3 and sorted(generated) == sorted(load(data).corpus)
    for name in ("corpus.jsonl", "expansions.jsonl", "samples.jsonl", "queries.jsonl", "qrels/test.tsv"):
        assert (tmp_path / "cut" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_the_batch_size_does_not_change_the_queries(t5, data, tmp_path):
    for size in (1, 7, 24):
        expand_data(str(data), t5, tmp_path / str(size), HOW, batch_size=size)
    contents = {(tmp_path / str(size) / "expansions.jsonl").read_bytes() for size in (1, 7, 24)}
    assert len(contents) == 1


def test_a_teacher_keeps_the_best_share_over_all_documents(t5, data, teacher, tmp_path, monkeypatch):
    monkeypatch.setattr(block_log, "BLOCK", 10)
    done = expand_data(str(data), t5, tmp_path / "out", HOW, teacher=teacher, keep=0.5)
    assert done.kept == 36
    corpus, matcher = load(data).corpus, load_matcher(teacher)
    everything = [
        (line["_id"], query) for line in records(tmp_path / "out" / "samples.jsonl") for query in line["queries"]
    ]
    scores = matcher.score([(query, corpus[key]) for key, query in everything])
    kept = records(tmp_path / "out" / "expansions.jsonl")
    lowest = min(score for line in kept for score in line["scores"])
    assert lowest >= np.sort(scores)[::-1][35] - 1e-5
    for line in kept:
        assert matcher.score([(query, corpus[line["_id"]]) for query in line["queries"]]) == pytest.approx(
            line["scores"], abs=1e-5
        )


def test_another_share_generates_and_scores_nothing_again(t5, data, teacher, tmp_path, monkeypatch):
    expand_data(str(data), t5, tmp_path / "out", HOW, teacher=teacher)
    from limbeck.matchers import CrossEncoder

    def never(*_):
        raise AssertionError

    monkeypatch.setattr(CrossEncoder, "score", never)
    monkeypatch.setattr(QueryGenerator, "generate", never)
    done = expand_data(str(data), t5, tmp_path / "out", HOW, teacher=teacher, keep=0.25)
    assert (done.kept, done.generated) == (18, 0)
    assert expand_data(str(data), t5, tmp_path / "out", HOW).kept == 72


def test_interrupted_scoring_resumes(t5, data, teacher, tmp_path, monkeypatch):
    monkeypatch.setattr(expand, "_SCORED", 5)
    expand_data(str(data), t5, tmp_path / "whole", HOW, teacher=teacher)
    from limbeck.matchers import CrossEncoder

    plain, asked = CrossEncoder.score, []

    def failing(self, pairs, *rest):
        asked.append(len(pairs))
        if len(asked) == 3:
            raise Cut
        return plain(self, pairs, *rest)

    monkeypatch.setattr(CrossEncoder, "score", failing)
    with pytest.raises(Cut):
        expand_data(str(data), t5, tmp_path / "cut", HOW, teacher=teacher)
    expand_data(str(data), t5, tmp_path / "cut", HOW, teacher=teacher)
    assert sum(asked) - asked[2] == 72
    assert records(tmp_path / "cut" / "expansions.jsonl") == records(tmp_path / "whole" / "expansions.jsonl")


def test_a_folder_of_other_work_is_refused_with_what_differs(t5, data, tmp_path):
    expand_data(str(data), t5, tmp_path / "out", HOW)
    before = (tmp_path / "out" / "expansions.jsonl").read_bytes()
    other = write_beir(tmp_path / "other", seed=4)
    untrained = str(write_t5(tmp_path / "untrained", steps=0))
    for source, model, how, word in (
        (other, t5, HOW, "documents"),
        (data, untrained, HOW, "model"),
        (data, t5, Sampling(per_document=3, top_k=5, max_length=6, seed=1), "seed is 0 there and 1 here"),
    ):
        with pytest.raises(LimbeckError, match=f"out: was made with other settings: .*{word}"):
            expand_data(str(source), model, tmp_path / "out", how)
    with pytest.raises(LimbeckError, match="already exists and limbeck did not write it; choose another --out"):
        expand_data(str(data), t5, data, HOW)
    assert (tmp_path / "out" / "expansions.jsonl").read_bytes() == before


def test_foreign_files_in_the_folder_are_not_deleted(t5, data, tmp_path):
    expand_data(str(data), t5, tmp_path / "out", HOW)
    (tmp_path / "out" / "notes.txt").write_text("mine")
    with pytest.raises(LimbeckError, match="holds 'notes.txt', which `limbeck expand` did not write"):
        expand_data(str(data), t5, tmp_path / "out", HOW)
    assert (tmp_path / "out" / "notes.txt").read_text() == "mine"


def test_mistakes_are_reported_before_anything_is_written(t5, data, tiny_bert, tmp_path):
    pairs = tmp_path / "pairs.jsonl"
    pairs.write_text('{"text_a": "copy", "text_b": "move", "label": 1}\n')
    for source, model, teacher, keep, problem in (
        (pairs, t5, None, None, "contains pairs, not rankings"),
        (data, tiny_bert, None, None, "not a seq2seq model"),
        (data, t5, None, 0.5, "--keep requires --filter"),
        (data, t5, tiny_bert, 1.5, "--keep 1.5 is not a share"),
        (data, t5, str(tmp_path / "absent"), None, "no such folder"),
    ):
        with pytest.raises(LimbeckError, match=problem):
            expand_data(str(source), model, tmp_path / "out", HOW, teacher=teacher, keep=keep)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("line", [0, 7, 23])
def test_from_a_damaged_line_of_a_log_on_queries_are_generated_again(t5, data, tmp_path, line):
    expand_data(str(data), t5, tmp_path / "out", HOW)
    log = tmp_path / "out" / "samples.jsonl"
    before = {file: file.read_bytes() for file in (tmp_path / "out").glob("*.jsonl")}
    lines = log.read_text().splitlines(keepends=True)
    lines[line] = lines[line].replace('"queries": ["', '"queries": ["x')
    log.write_text("".join(lines))
    assert expand_data(str(data), t5, tmp_path / "out", HOW).generated == 24 - line
    assert {file: file.read_bytes() for file in (tmp_path / "out").glob("*.jsonl")} == before


def test_work_of_an_earlier_version_resumes_without_checksums(t5, data, tmp_path, monkeypatch):
    with monkeypatch.context() as earlier:
        earlier.setattr(expand, "_keeps_checksums", lambda _: False)
        expand_data(str(data), t5, tmp_path / "out", HOW)
    log = tmp_path / "out" / "samples.jsonl"
    lines = log.read_text().splitlines(keepends=True)
    log.write_text("".join(lines[:20]))
    assert expand_data(str(data), t5, tmp_path / "out", HOW).generated == 4
    assert log.read_text() == "".join(lines) and "checksum" not in lines[0]
    log.write_text("".join([lines[0].replace('"_id": "', '"_id": "x'), *lines[1:]]))
    with pytest.raises(LimbeckError, match="samples.jsonl: is damaged between lines 1 and 24; remove"):
        expand_data(str(data), t5, tmp_path / "out", HOW)


@pytest.mark.parametrize("name", ["corpus.jsonl", "queries.jsonl", "expansions.jsonl", "qrels/test.tsv"])
def test_every_reader_names_a_finished_file_that_was_changed(t5, data, tmp_path, name):
    expand_data(str(data), t5, tmp_path / "out", HOW)
    file = tmp_path / "out" / name
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    with pytest.raises(
        LimbeckError, match=f"{name}: has changed since `limbeck expand` wrote it; make the folder again"
    ):
        load(tmp_path / "out")
    if name == "expansions.jsonl":
        with pytest.raises(LimbeckError, match="has changed since `limbeck expand` wrote it"):
            read_expansions(file)
    (tmp_path / "out" / "limbeck-files.json").unlink()
    assert len(load_passages(tmp_path / "out").corpus) == 24 if name == "expansions.jsonl" else True


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ('{"_id": "d1"}\n', ":1: has no `_id` or no list of `queries`"),
        ('{"_id": "d1", "queries": [3]}\n', ":1: a query is a number, not a string"),
        ('{"_id": "d1", "queries": []}\n{"_id": "d1", "queries": []}\n', "duplicate id 'd1'"),
        ("", "contains no expansions"),
        ("{\n", ":1: is not valid JSON"),
    ],
)
def test_invalid_expansions_are_named(tmp_path, content, problem):
    path = tmp_path / "expansions.jsonl"
    path.write_text(content)
    with pytest.raises(LimbeckError, match="expansions.jsonl") as raised:
        read_expansions(path)
    assert problem in str(raised.value)


def test_expansions_of_other_documents_are_refused(data, tmp_path):
    (tmp_path / "e.jsonl").write_text('{"_id": "d77", "queries": ["copy"]}\n')
    with pytest.raises(LimbeckError, match="name document 'd77', which the corpus does not have"):
        expanded(load(data).corpus, read_expansions(tmp_path / "e.jsonl"))
