"""Recall by answers in the table of a run."""

from __future__ import annotations

import json

import pytest

import limbeck as lb
from limbeck.data import load
from limbeck.errors import LimbeckError
from limbeck.evaluation.answers import answer_tokens, has_answer


def as_dpr(beir, folder):
    """The same data as DPR's files; the answer of a question is the first two words of its passage."""
    data = load(beir)
    folder.mkdir()
    rows = "".join(f"{key}\t{text}\t\n" for key, _, text in data.corpus.records())
    (folder / "psgs_w100.tsv").write_text(f"id\ttext\ttitle\n{rows}")
    for split, judged in data.qrels.items():
        questions = []
        for query, grades in judged.items():
            (key,) = grades
            answer = " ".join(data.corpus[key].split()[:2])
            context = {"title": "", "text": data.corpus[key], "passage_id": key}
            questions.append({"question": data.queries[query], "answers": [answer], "positive_ctxs": [context]})
        (folder / f"qa-{split}.json").write_text(json.dumps(questions))
    return folder


def test_a_run_measures_recall_by_answers(recipe, beir, tmp_path):
    source = as_dpr(beir, tmp_path / "dpr")
    measures = ["answer_recall@3", "ndcg@10"]
    recipe["evaluation"] |= {"measures": measures, "task": "retrieve", "train_queries": 4}
    recipe["data"]["source"] = str(source)
    result = lb.distill(recipe, tmp_path / "run")
    data = load(source)
    run = lb.evaluate("bm25", source, depth=10, measures=measures, run=tmp_path / "bm25.trec")
    rows = {row.name: row.measures for row in result.rows}
    assert rows["BM25"]["answer_recall@3"] == pytest.approx(run.measures["answer_recall@3"])
    best: dict[str, list[str]] = {}
    for line in (tmp_path / "bm25.trec").read_text().splitlines():
        query, _, document, *_ = line.split()
        best.setdefault(query, []).append(document)
    found = [
        any(has_answer(data.corpus[key], [answer_tokens(data.answers[query][0])]) for key in documents[:3])
        for query, documents in best.items()
    ]
    assert rows["BM25"]["answer_recall@3"] == pytest.approx(sum(found) / 6) and sum(found) > 0
    assert all("answer_recall@3" in row for row in rows.values())
    assert "Answer recall@3" in (tmp_path / "run" / "report.html").read_text()
    dev = [json.loads(line).get("dev") for line in (tmp_path / "run" / "log.jsonl").read_text().splitlines()]
    assert any(entry and "answer_recall@3" in entry for entry in dev)


def test_a_test_split_without_passages_is_measured_by_answers_alone(recipe, beir, tmp_path, monkeypatch):
    source = as_dpr(beir, tmp_path / "dpr")
    questions = json.loads((source / "qa-test.json").read_text())
    (source / "qa-test.json").unlink()
    (source / "qa-test.csv").write_text("".join(f"{each['question']}\t{each['answers']}\n" for each in questions))
    recipe["data"]["source"] = str(source)
    recipe["evaluation"] |= {"measures": ["answer_recall@3"], "task": "retrieve", "analyses": []}
    rows = {row.name: row.measures for row in lb.distill(recipe, tmp_path / "run").rows}
    judged = lb.evaluate("bm25", source, depth=10, measures=["answer_recall@3"])
    assert rows["BM25"] == pytest.approx(judged.measures) and rows["student"].keys() == {"answer_recall@3"}
    recipe["evaluation"]["measures"] = ["recall@3"]
    said: list[str] = []
    monkeypatch.setattr("limbeck.runs.run.say", said.append)
    assert not lb.distill(recipe, tmp_path / "other").rows
    assert any(
        "split 'test' has answers but no judged passages (measure it with answer_recall@k" in one for one in said
    )


def test_without_answers_a_run_does_not_begin(recipe, tmp_path):
    recipe["evaluation"]["measures"] = ["answer_recall@3"]
    with pytest.raises(LimbeckError, match=r"has no answers at all, and answer_recall@3 looks for them; use recall@k"):
        lb.distill(recipe, tmp_path / "run")
