import json
from pathlib import Path
from typing import Any

import pytest

from limbeck.data import RankingData, load
from limbeck.data.dpr import load_dpr
from limbeck.errors import LimbeckError
from tests.data.folders import write

PASSAGES = (
    "id\ttext\ttitle\n"
    '1\t"Aaron is a ""prophet"" and priest"\tAaron\n'
    "2\tMoses led\tMoses\n"
    '3\tred "sea" crossing\t"Sea, Red"\n'
    "4\tnothing here\t\n"
)


def context(number: int, key: str = "passage_id") -> dict[str, Any]:
    return {"title": f"Title {number}", "text": f"context {number}", "score": 1.5, key: str(number)}


TRAIN = [
    {
        "dataset": "nq_train",
        "question": "who was a prophet",
        "answers": ["Aaron", "Moses"],
        "positive_ctxs": [context(1)],
        "negative_ctxs": [context(4)],
        "hard_negative_ctxs": [context(3, "psg_id"), context(1)],
    },
    {
        "question": "who led",
        "answers": ["Moses"],
        "positive_ctxs": [context(2)],
        "negative_ctxs": [],
        "hard_negative_ctxs": [],
    },
]


def folder(path: Path, passages: str | None = PASSAGES, train: list[Any] | None = None, gz: str = "") -> Path:
    if passages is not None:
        write(path / f"psgs_w100.tsv{gz}", passages)
    write(path / f"biencoder-nq-train.json{gz}", json.dumps(TRAIN if train is None else train, indent=4))
    write(path / f"nq-test.qa.csv{gz}", 'what is red\t["the sea"]\n"who ""is"" old"\t[\'Moses\', "Aaron\'s"]\n')
    return path


@pytest.mark.parametrize("gz", ["", ".gz"])
def test_passages_questions_answers_and_candidates_are_read(tmp_path: Path, gz: str) -> None:
    data = load(folder(tmp_path / "nq", gz=gz))
    assert isinstance(data, RankingData)
    assert list(data.corpus.records()) == [
        ("1", "Aaron", 'Aaron is a "prophet" and priest'),
        ("2", "Moses", "Moses led"),
        ("3", "Sea, Red", 'red "sea" crossing'),
        ("4", "", "nothing here"),
    ]
    assert dict(data.queries.items()) == {
        "train-0": "who was a prophet",
        "train-1": "who led",
        "test-0": "what is red",
        "test-1": 'who "is" old',
    }
    assert data.qrels == {"train": {"train-0": {"1": 1}, "train-1": {"2": 1}}}
    assert data.answers["train-0"] == ["Aaron", "Moses"]
    assert data.answers["test-1"] == ["Moses", "Aaron's"]
    assert data.runs["train"]["train-0"] == {"1": -1.0, "3": -2.0, "4": -3.0}
    assert data.runs["train"]["train-1"] == {"2": -1.0}


def test_the_same_question_in_both_files_is_one_query(tmp_path: Path) -> None:
    home = folder(tmp_path / "nq")
    write(home / "nq-train.qa.csv", "who  was a prophet\t['Aaron', 'Elijah']\nnew one\t['x']\n")
    data = load_dpr(home)
    assert data.answers["train-0"] == ["Aaron", "Moses", "Elijah"]
    assert data.queries["train-2"] == "new one"


def test_without_passages_the_contexts_are_the_corpus(tmp_path: Path) -> None:
    home = folder(tmp_path / "nq", passages=None)
    for source in (home, home / "biencoder-nq-train.json"):
        data = load(source)
        assert isinstance(data, RankingData)
        assert dict(data.corpus.items()) == {str(k): f"Title {k} context {k}" for k in (1, 3, 4, 2)}
        assert data.qrels["train"]["train-1"] == {"2": 1}


def test_a_file_called_latest_is_not_a_test_file(tmp_path: Path) -> None:
    home = folder(tmp_path / "nq", passages=None)
    (home / "biencoder-nq-train.json").rename(home / "nq-latest-train.json")
    assert "train" in load_dpr(home).qrels


def test_contexts_without_ids_are_distinguished_by_their_text(tmp_path: Path) -> None:
    train = [TRAIN[0] | {side: [{"title": "", "text": text} for text in texts] for side, texts in (
        ("positive_ctxs", ["good"]), ("hard_negative_ctxs", ["bad", "good"]), ("negative_ctxs", [])
    )}]  # fmt: skip
    data = load_dpr(folder(tmp_path / "nq", passages=None, train=train))
    assert sorted(text for _, text in data.corpus.items()) == ["bad", "good"]
    assert len(data.runs["train"]["train-0"]) == 2


def test_prefixed_passage_ids_of_newer_files_are_understood(tmp_path: Path) -> None:
    train = [TRAIN[0] | {"positive_ctxs": [context(1) | {"passage_id": "wiki:1"}]}]
    assert load_dpr(folder(tmp_path / "nq", train=train)).qrels["train"]["train-0"] == {"1": 1}


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("biencoder-nq-train.json", json.dumps([{"question": "x", "positive_ctxs": [context(9)]}]), "passage '9'"),
        ("biencoder-nq-train.json", '[\n{"question": "x", "answers": []},\n{"question": ""}]', ":3: has no question"),
        ("biencoder-nq-train.json", '[\n{"question": "x", "answers": [3]}]', ":2: has answers that are not a list"),
        (
            "biencoder-nq-train.json",
            '[{"question": "x", "positive_ctxs": ["text"]}]',
            "a string without a `text`",
        ),
        ("nq-test.qa.csv", "what\t['x']\nwhy\n", ":2: is not a question with answers"),
        ("nq-test.qa.csv", "what\t__import__('os').getcwd()\n", ":1: is not a question with answers"),
        ("nq-test.qa.csv", "what\t'x'\n", ":1: has answers that are not a list"),
        ("psgs_w100.tsv", PASSAGES + "5\tone field less\n", ":6: has 2 tab-separated fields, not 3"),
        ("psgs_w100.tsv", PASSAGES + "2\tx\ty\n", ":6: duplicate passage id '2', first on line 3"),
        ("psgs_w100.tsv", PASSAGES + '5\t"x\ty\n', ":6: has wrong quotes"),
        ("nq-train2.json", "[]", "second file for split 'train'"),
    ],
)
def test_bad_files_are_named_with_their_line(tmp_path: Path, name: str, content: str, problem: str) -> None:
    home = folder(tmp_path / "nq")
    write(home / name, content)
    with pytest.raises(LimbeckError, match=problem) as caught:
        load(home)
    assert name.removesuffix("2.json") in str(caught.value)


def test_questions_without_any_passage_are_not_a_data_set(tmp_path: Path) -> None:
    file = write(tmp_path / "train.json", '[{"question": "x", "answers": ["y"]}]')
    with pytest.raises(
        LimbeckError, match=r"train\.json: has questions without contexts; put psgs_w100\.tsv next to it"
    ):
        load(file)


def test_answers_without_questions_are_not_a_data_set(tmp_path: Path) -> None:
    home = tmp_path / "nq"
    write(home / "nq-test.qa.csv", "what\t['x']\n")
    with pytest.raises(LimbeckError, match=r"psgs_w100\.tsv: no such file"):
        load_dpr(home)
