"""Recall by answer strings, against DPR's rules written out with the `regex` package."""

from __future__ import annotations

import json
import random
import unicodedata

import numpy as np
import pytest

import limbeck as lb
from limbeck.data import RankingData, Texts
from limbeck.errors import LimbeckError
from limbeck.evaluation import canonical_name, compare_rankings, evaluate_run, parse_measure
from limbeck.evaluation.answers import answer_tokens, has_answer
from tests.cli.conftest import limbeck  # noqa: F401  (fixture)
from tests.cli.test_cli import assert_one_line_about

CORPUS = {
    "d1": "The capital of France is PARIS, of course.",
    "d2": "Parisians live elsewhere.",
    "d3": "It opened on 14 July 1789.",
    "d4": "A cafe\u0301 in Zu\u0308rich",
    "d5": "nothing at all",
}
ANSWERS = {"q1": ["Paris"], "q2": ["July 1789", "summer"], "q3": ["café in Zürich"], "q4": ["something else"]}


def data(**changes) -> RankingData:
    corpus = Texts.build((key, "Paris" if key == "d5" else "", text) for key, text in CORPUS.items())
    queries = Texts.from_dict({key: f"question {key}" for key in ANSWERS})
    judged = {"test": {key: {"d5": 1} for key in ANSWERS}}
    return RankingData("qa", corpus, queries, judged, **{"answers": ANSWERS, **changes})


def by_dpr(text: str) -> list[str]:
    """SimpleTokenizer of DPR: runs of letters, digits and marks, or one visible character."""
    regex = pytest.importorskip("regex")
    pattern = regex.compile(r"([\p{L}\p{N}\p{M}]+)|([^\p{Z}\p{C}])", regex.IGNORECASE | regex.UNICODE | regex.MULTILINE)
    return [found.group().lower() for found in pattern.finditer(unicodedata.normalize("NFD", text))]


def test_tokens_are_those_of_dpr():
    assert answer_tokens("Zoë's 3.5% co-op\u00a0\u200bX") == [
        "zoe\u0308",
        "'",
        "s",
        "3",
        ".",
        "5",
        "%",
        "co",
        "-",
        "op",
        "x",
    ]
    chance = random.Random(0)
    letters = [chr(code) for code in (*range(32, 0x500), *range(0x900, 0xA00), *range(0x2000, 0x2100), 0x4E00, 0x1F600)]
    letters = [letter for letter in letters if unicodedata.category(letter) != "Cn"]
    for _ in range(300):
        text = "".join(chance.choices(letters, k=60))
        assert answer_tokens(text) == by_dpr(text)


@pytest.mark.parametrize(
    ("text", "answer", "found"),
    [
        ("in PARIS, say", "paris", True),
        ("the Parisians", "paris", False),  # whole tokens only
        ("a b a c", "a c", True),  # the first `a` leads nowhere
        ("a b", "a b c", False),
        ("it's", "its", False),
        ("Zürich", "Zu\u0308rich", True),
        ("U.S.A.", "u. s. a", True),
        ("anything", " ", False),
        ("", "a", False),
    ],
)
def test_an_answer_occurs_if_its_tokens_are_consecutive(text, answer, found):
    assert has_answer(text, [answer_tokens(answer)]) is found
    assert has_answer(text, [["zzz"], answer_tokens(answer)]) is found


RUN = {
    "q1": {"d2": 3.0, "d5": 2.0, "d1": 1.0},  # the title of d5 does not count; d1 is third
    "q2": {"d3": 1.0},
    "q3": {"d1": 2.0, "d4": 1.0},
    "q4": {"d1": 1.0, "d2": 0.5},
}


def test_a_query_counts_as_found_if_an_answer_is_among_its_best_passages():
    names = ["answer_recall@1", "answer_recall@2", "answer_recall@3", "recall@2"]
    result = evaluate_run(RUN, data().qrels["test"], names, data=data())
    assert result.query_ids == ("q1", "q2", "q3", "q4")
    assert result.per_query["answer_recall@1"].tolist() == [0, 1, 0, 0]
    assert result.per_query["answer_recall@2"].tolist() == [0, 1, 1, 0]
    assert result.per_query["answer_recall@3"].tolist() == [1, 1, 1, 0]
    assert result.per_query["recall@2"].tolist() == [1, 0, 0, 0]  # by judgements, as before
    assert result["answer_recall@3"] == 0.75
    other = evaluate_run({**RUN, "q1": {"d1": 1.0}}, data().qrels["test"], names, data=data())
    found = compare_rankings(other, result, "answer_recall@1")
    assert found.difference == pytest.approx(0.25) and found.record[0] == 1


def test_equal_scores_are_ranked_as_for_every_other_measure():
    tied = {"q1": {"d1": 1.0, "d2": 1.0}}  # the greater id first
    result = evaluate_run(tied, {"q1": {}}, ["answer_recall@1", "answer_recall@2"], data=data())
    assert (result["answer_recall@1"], result["answer_recall@2"]) == (0.0, 1.0)


def test_queries_without_passages_or_answers_count_as_not_found():
    result = evaluate_run({"q1": {"d1": 1.0}}, {"q1": {}, "q9": {}, "q2": {}}, ["answer_recall@1"], data=data())
    np.testing.assert_array_equal(result.per_query["answer_recall@1"], [1, 0, 0])


def test_the_name_has_one_spelling_and_needs_a_cutoff():
    assert canonical_name("Answer_Recall@20") == "answer_recall@20"
    with pytest.raises(LimbeckError, match="needs a cutoff; write e.g. answer_recall@10"):
        canonical_name("answer_recall")
    with pytest.raises(LimbeckError, match="did you mean 'answer_recall'"):
        canonical_name("answers_recall@5")
    with pytest.raises(LimbeckError, match="not one of ir-measures'"):
        parse_measure("answer_recall@5")
    with pytest.raises(LimbeckError, match=r"answer_recall@5: needs data with answers"):
        evaluate_run(RUN, data().qrels["test"], ["answer_recall@5"])


def write_dpr(folder):
    """Judged questions in train and dev; those of test have answers alone, and dev.csv has one question more."""
    folder.mkdir()
    rows = "".join(f"{key}\t{text}\t\n" for key, text in CORPUS.items())
    (folder / "psgs_w100.tsv").write_text(f"id\ttext\ttitle\n{rows}")

    def question(text, answers, passage):
        context = {"title": "", "text": CORPUS[passage], "passage_id": passage}
        return {"question": text, "answers": answers, "positive_ctxs": [context]}

    train = [
        question("which city is the capital of France", ["Paris"], "d1"),
        question("live where", ["elsewhere"], "d2"),
    ]
    (folder / "nq-train.json").write_text(json.dumps(train))
    (folder / "nq-dev.json").write_text(json.dumps([question("opened when", ["1789"], "d3")]))
    (folder / "nq-dev.csv").write_text("opened when\t['1789']\nwho lives elsewhere\t['nobody']\n")
    (folder / "nq-test.csv").write_text("capital of France\t['paris']\nwhat is nothing\t['the void']\n")
    return folder


def test_a_split_with_only_answers_is_measured_by_them(tmp_path, limbeck):  # noqa: F811
    folder = write_dpr(tmp_path / "nq")
    done = lb.evaluate("bm25", folder, measures=["answer_recall@5", "answer_recall@1"])
    assert (done.count, done.measures) == (2, {"answer_recall@5": 0.5, "answer_recall@1": 0.5})
    told = limbeck("evaluate", "bm25", folder, "--measures", "answer_recall@20", "--task", "retrieve")
    assert "answer_recall@20  0.5000" in told.out and told.code == 0
    failed = limbeck(
        "evaluate", "bm25", folder, "--measures", "answer_recall@20", "--fail-below", "answer_recall@20=0.6"
    )
    assert failed.code == 1 and "answer_recall@20 is 0.5000, below 0.6" in failed.err
    refused = limbeck("evaluate", "bm25", folder, "--measures", "ndcg@10,answer_recall@20")
    assert_one_line_about(refused, "no judgements for split 'test'")


def test_the_questions_of_a_split_are_all_that_have_answers_or_all_that_are_judged(tmp_path):
    folder = write_dpr(tmp_path / "nq")
    assert lb.evaluate("bm25", folder, split="dev", measures=["answer_recall@5"]).measures == {"answer_recall@5": 0.5}
    both = lb.evaluate("bm25", folder, split="dev", measures=["answer_recall@5", "recall@5"])
    assert both.count == 1 and both.measures == {"answer_recall@5": 1.0, "recall@5": 1.0}


def test_data_without_answers_are_one_line(tmp_path, limbeck):  # noqa: F811
    folder = tmp_path / "beir"
    (folder / "qrels").mkdir(parents=True)
    (folder / "corpus.jsonl").write_text('{"_id": "d1", "text": "copy a file"}\n')
    (folder / "queries.jsonl").write_text('{"_id": "q1", "text": "copy"}\n')
    (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\nq1\td1\t1\n")
    told = limbeck("evaluate", "bm25", folder, "--measures", "answer_recall@20")
    assert_one_line_about(told, "beir: has no answers at all, and answer_recall@20 looks for them; use recall@k")
    nq = write_dpr(tmp_path / "nq")
    told = limbeck("evaluate", "bm25", nq, "--measures", "answer_recall@20", "--split", "tset")
    assert_one_line_about(told, "nq: has no answers for these queries")
