import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from limbeck.data import RankingData, Texts, iterate_scores, load, read_scored_texts, read_scores, write_scores
from limbeck.data.lines import blocks
from limbeck.errors import LimbeckError
from tests.data.folders import jsonl, write

RUN = {"q1": {"d1": 9.5, "d2": -1.25, "d3": 9.75}, "q2": {"d2": 3.0, "d3": 1e-9, "d1": 2.0}}


@pytest.fixture
def data() -> RankingData:
    corpus = Texts.build([("d1", "Cats", "purr  softly"), ("d2", "", "dogs bark"), ("d3", "", "fish swim")])
    queries = Texts.from_dict({"q1": "who purrs?", "q2": "who barks?", "q3": "unjudged"})
    return RankingData("pets", corpus, queries, {"train": {"q1": {"d1": 1, "d2": 0}}})


def as_dict(run: Any) -> dict[str, dict[str, float]]:
    return {query: dict(scores) for query, scores in run.items()}


@pytest.mark.parametrize("gz", ["", ".gz"])
@pytest.mark.parametrize("shape", ["trec", "sentence-transformers", "pylate", "flagembedding"])
def test_every_shape_reads_back_unchanged(tmp_path: Path, data: RankingData, shape: str, gz: str) -> None:
    file = tmp_path / f"scores.jsonl{gz}"
    write_scores(RUN, file, shape, data)
    assert as_dict(read_scores(file, data)) == RUN
    ragged = RUN | {"q3": {"d1": 0.5}}
    write_scores(ragged, file, shape, data)
    assert as_dict(read_scores(file, data)) == ragged


def test_shapes_are_written_as_their_projects_read_them(tmp_path: Path, data: RankingData) -> None:
    def first(shape: str, run: dict[str, dict[str, float]] = RUN) -> dict[str, Any]:
        write_scores(run, tmp_path / "a.jsonl", shape, data)
        return json.loads((tmp_path / "a.jsonl").read_text().splitlines()[0])

    # The judged positive comes first although d3 has the higher score.
    assert first("pylate") == {"query_id": "q1", "document_ids": ["d1", "d3", "d2"], "scores": [9.5, 9.75, -1.25]}
    assert first("flagembedding") == {
        "query": "who purrs?",
        "pos": ["Cats purr  softly"],
        "neg": ["fish swim", "dogs bark"],
        "pos_scores": [9.5],
        "neg_scores": [9.75, -1.25],
    }
    columns = first("sentence-transformers")
    assert list(columns) == ["query", "document_1", "document_2", "document_3", "scores"]
    assert columns["document_1"] == "Cats purr  softly"
    assert columns["scores"] == [9.5, 9.75, -1.25]
    ragged = first("sentence-transformers", {"q1": {"d1": 1.0}, "q2": {"d1": 1.0, "d2": 2.0}})
    assert ragged == {"query": "who purrs?", "documents": ["Cats purr  softly"], "scores": [1.0]}


def test_without_judgements_the_best_document_is_flagembeddings_positive(tmp_path: Path, data: RankingData) -> None:
    write_scores({"q3": {"d1": 1.0, "d2": 5.0}}, tmp_path / "a.jsonl", "flagembedding", data)
    assert json.loads((tmp_path / "a.jsonl").read_text())["pos"] == ["dogs bark"]


TEXTS = {"query": "who purrs?", "positive": "Cats purr softly", "negative": "dogs bark"}


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        (TEXTS | {"label": [4, 1.5]}, {"d1": 4.0, "d2": 1.5}),
        (TEXTS | {"scores": [4, 1.5]}, {"d1": 4.0, "d2": 1.5}),
        (TEXTS | {"label": 2.5}, {"d1": 0.0, "d2": -2.5}),
        (TEXTS | {"negative_2": "fish swim", "label": [2, 3]}, {"d1": 0.0, "d2": -2.0, "d3": -3.0}),
        (TEXTS | {"negative_2": "fish swim", "label": [4, 2, 3]}, {"d1": 4.0, "d2": 2.0, "d3": 3.0}),
        ({"query": "who purrs?", "positive": "purr softly", "negatives": ["dogs bark"], "scores": [1, 0]},
         {"d1": 1.0, "d2": 0.0}),
        ({"anchor": "who purrs?", "passage": "fish swim", "score": 0.5}, {"d3": 0.5}),
        ({"query": "who purrs?", "docs": ["dogs bark", "fish swim"], "labels": [0.5, 0]}, {"d2": 0.5, "d3": 0.0}),
        ({"query_id": "q1", "document_ids": ["d1", "d2"], "scores": [1, 2]}, {"d1": 1.0, "d2": 2.0}),
        ({"query_id": "q1", "document_ids": "['d1', 'd2']", "scores": "[1, 2]"}, {"d1": 1.0, "d2": 2.0}),
        ({"query_id": "q1", "passage_id": "d1", "score": 7}, {"d1": 7.0}),
        ({"query_id": "q1", "positive_id": "d1", "negative_id": "d3", "score": 7}, {"d1": 0.0, "d3": -7.0}),
        ({"query": "who purrs?", "pos": ["Cats purr softly"], "neg": ["dogs bark"], "pos_scores": [3],
          "neg_scores": [1], "prompt": "", "type": "normal"}, {"d1": 3.0, "d2": 1.0}),
        ({"query": "who purrs?", "pos": ["Cats purr softly"], "neg": [], "pos_scores": [3], "neg_scores": []},
         {"d1": 3.0}),
    ],
)  # fmt: skip
def test_shapes_of_other_projects_are_understood(
    tmp_path: Path, data: RankingData, record: dict[str, Any], expected: dict[str, float]
) -> None:
    assert as_dict(read_scores(write(tmp_path / "a.jsonl", jsonl([record])), data)) == {"q1": expected}


def test_ids_that_are_numbers_are_strings(tmp_path: Path) -> None:
    file = write(tmp_path / "a.jsonl", '{"query_id": 7, "document_ids": [1, 2], "scores": [0.5, 1]}\n')
    assert read_scores(file) == {"7": {"1": 0.5, "2": 1.0}}


@pytest.mark.parametrize("size", [30, 1 << 20])
@pytest.mark.parametrize("gz", ["", ".gz"])
def test_hofstaetters_triples_count_each_pair_once(
    tmp_path: Path, data: RankingData, monkeypatch: pytest.MonkeyPatch, size: int, gz: str
) -> None:
    monkeypatch.setattr("limbeck.data.columns.blocks", partial(blocks, size=size))
    file = write(tmp_path / f"t1.tsv{gz}", "9.5\t-1.25\tq1\td1\td2\n9.5\t0.75\tq1\td1\td3\n3.0\t2.0\tq2\td2\td1\n")
    expected = {"q1": {"d1": 9.5, "d2": -1.25, "d3": 0.75}, "q2": {"d2": 3.0, "d1": 2.0}}
    assert as_dict(read_scores(file, data)) == expected
    assert read_scores(file) == expected
    stream = iterate_scores(file)
    assert [next(stream) for _ in range(3)] == [(1, "q1", "d1", 9.5), (1, "q1", "d2", -1.25), (2, "q1", "d1", 9.5)]


def test_texts_without_data_become_a_data_set(tmp_path: Path) -> None:
    records = [TEXTS | {"label": [4, 1]}, TEXTS | {"negative": "fish  swim", "label": [4, 2]}]
    records.append(TEXTS | {"query": "other", "positive": "fish swim", "label": [1, 0]})
    file = write(tmp_path / "mined.jsonl", jsonl(records))
    for made in (read_scored_texts(file), load(file)):
        assert isinstance(made, RankingData)
        assert dict(made.queries.items()) == {"q0": "who purrs?", "q1": "other"}
        assert dict(made.corpus.items()) == {"d0": "Cats purr softly", "d1": "dogs bark", "d2": "fish  swim"}
        assert made.runs["train"] == {"q0": {"d0": 4.0, "d1": 1.0, "d2": 2.0}, "q1": {"d2": 1.0, "d1": 0.0}}
        assert made.qrels == {"train": {"q0": {"d0": 1}, "q1": {"d2": 1}}}


IDS = {"query_id": "q1", "document_ids": ["d1", "d2"], "scores": [1, 2]}
FLAG = {"query": "who purrs?", "pos": ["dogs bark"], "neg": ["fish swim"], "pos_scores": [1], "neg_scores": [0]}


@pytest.mark.parametrize(
    ("record", "problem"),
    [
        (IDS | {"scores": [1, float("nan")]}, "score is nan"),
        (IDS | {"scores": [1, float("inf")]}, "score is inf"),
        (IDS | {"scores": [1, 1e300]}, "score is 1e+300; scale it".replace("+", r"\+")),
        (IDS | {"scores": [1, "x"]}, "score 'x' is not a number"),
        (IDS | {"scores": [1, None]}, "score None is not a number"),
        (IDS | {"scores": [1, 10**400]}, "score is inf"),
        (IDS | {"scores": [1, 2, 3]}, "has 2 documents and 3 numbers in `scores`"),
        (IDS | {"scores": None}, "has no scores"),
        (IDS | {"query_id": "q9"}, "names query 'q9'"),
        (IDS | {"document_ids": ["d1", "d9"]}, "names document 'd9'"),
        (IDS | {"document_ids": []}, "has 0 documents and 2 numbers"),
        (IDS | {"document_ids": "[d1"}, "has a list that cannot be read"),
        (FLAG | {"pos_scores": [1, 2]}, "has 1 texts in `pos` and 2 numbers in `pos_scores`"),
        (FLAG | {"neg_scores": [float("-inf")]}, "score is -inf"),
        (FLAG | {"neg_scores": None}, "has no list `neg_scores`"),
        (FLAG | {"pos": [3]}, "`pos` contains a number"),
        (FLAG | {"query": " "}, "`query` is empty"),
        (FLAG | {"query": "never asked"}, "contains a query that the data do not have: 'never asked'"),
        (
            TEXTS | {"negative": "cows moo", "label": [1, 0]},
            "contains a document that the data do not have: 'cows moo'",
        ),
        ({"text": "x", "label": 1}, "has no query and documents"),
    ],
)
def test_bad_scores_are_named_with_their_line(
    tmp_path: Path, data: RankingData, record: dict[str, Any], problem: str
) -> None:
    good = {"query_id": "q2", "document_ids": ["d1"], "scores": [1]}
    file = write(tmp_path / "a.jsonl", jsonl([good]) + "\n" + jsonl([record]) + jsonl([good]))
    with pytest.raises(LimbeckError, match=problem) as caught:
        read_scores(file, data)
    assert str(caught.value).startswith(f"{file}:3: ")


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("nan\t1\tq1\td1\td2", "score is nan"),
        ("1e30\t1\tq1\td1\td2", "score is 1e"),
        ("1\t-inf\tq1\td1\td2", "score is -inf"),
        ("1\thigh\tq1\td1\td2", "score 'high' is not a number"),
        ("1\t2\tq9\td1\td2", "names query 'q9'"),
        ("1\t2\tq1\td1\td9", "names document 'd9'"),
        ("1\t2\tq1\td1", "has 4 tab-separated fields, not 5"),
    ],
)
def test_bad_triples_are_named_with_their_line(tmp_path: Path, data: RankingData, line: str, problem: str) -> None:
    file = write(tmp_path / "a.tsv", f"1\t2\tq1\td1\td2\n\n{line}\n")
    with pytest.raises(LimbeckError, match=problem) as caught:
        read_scores(file, data)
    assert str(caught.value).startswith(f"{file}:3: ")


@pytest.mark.parametrize("given", [True, False])
def test_one_pair_with_two_scores_is_refused(tmp_path: Path, data: RankingData, given: bool) -> None:
    file = write(tmp_path / "a.jsonl", jsonl([IDS, IDS, IDS | {"scores": [1, 7]}]))
    with pytest.raises(LimbeckError, match=r":3: .* twice, with scores 2 and 7"):
        read_scores(file, data if given else None)
    run = write(tmp_path / "a.trec", "q1 Q0 d1 1 2.0 x\nq1 Q0 d1 2 2.0 x\n")
    with pytest.raises(LimbeckError, match=r"a\.trec:2: "):
        read_scores(run, data if given else None)


def test_margins_to_two_documents_of_one_query_have_no_common_scale(tmp_path: Path, data: RankingData) -> None:
    file = write(tmp_path / "a.jsonl", jsonl([TEXTS | {"label": 1}, TEXTS | {"positive": "fish swim", "label": 1}]))
    for read in (partial(read_scores, data=data), read_scored_texts):
        with pytest.raises(LimbeckError, match=r":2: gives margins to document .* give a score for each document"):
            read(file)


@pytest.mark.parametrize("content", ["", "a b c\n", "1\t2\t3\n"])
def test_a_file_that_is_not_a_score_file_raises_an_error_with_the_formats(tmp_path: Path, content: str) -> None:
    with pytest.raises(LimbeckError, match=r"TREC run"):
        read_scores(write(tmp_path / "a.txt", content))


def test_texts_need_data_and_ids_need_data_too(tmp_path: Path, data: RankingData) -> None:
    with pytest.raises(LimbeckError, match="contains texts, not ids"):
        read_scores(write(tmp_path / "a.jsonl", jsonl([FLAG])))
    with pytest.raises(LimbeckError, match="contains ids, not texts"):
        read_scored_texts(write(tmp_path / "b.jsonl", jsonl([IDS])))
    with pytest.raises(LimbeckError, match="'flagembedding' contains texts"):
        write_scores(RUN, tmp_path / "c.jsonl", "flagembedding")
    with pytest.raises(LimbeckError, match=r"unknown shape of scores 'pylatte'; did you mean 'pylate'"):
        write_scores(RUN, tmp_path / "c.jsonl", "pylatte", data)
    with pytest.raises(LimbeckError, match="the score is nan"):
        write_scores({"q1": {"d1": float("nan")}}, tmp_path / "c.jsonl", "pylate", data)
    assert not (tmp_path / "c.jsonl").exists()
