from functools import partial
from pathlib import Path

import numpy as np
import pytest

from limbeck.data import load
from limbeck.data.candidates import CandidateLists
from limbeck.data.dataset import Pair, PairData, RankingData, Texts
from limbeck.data.lines import blocks
from limbeck.data.msmarco import load_msmarco
from limbeck.data.triples import read_triples
from limbeck.errors import LimbeckError
from tests.data.folders import write

COLLECTION = "".join(f'{number}\tpassage "{number}"\n' for number in range(10))


@pytest.fixture(params=["", ".gz"])
def folder(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    gz = request.param
    home = tmp_path / "msmarco"
    write(home / f"collection.tsv{gz}", COLLECTION)
    write(home / f"queries.train.tsv{gz}", "100\tfirst query\n101\tsecond query\n")
    write(home / f"queries.dev.tsv{gz}", "200\tdev query\n201\tother dev query\n")
    write(home / f"queries.dev.small.tsv{gz}", "200\tdev query\n")
    write(home / f"msmarco-test2019-queries.tsv{gz}", "300\ttest query\n")
    write(home / f"qrels.train.tsv{gz}", "100\t0\t3\t1\n101\t0\t4\t1\n")
    write(home / f"qrels.dev.small.tsv{gz}", "200\t0\t5\t1\n")
    write(home / f"2019qrels-pass.txt{gz}", "300 Q0 6 3\n300 Q0 7 0\n")
    write(home / f"qidpidtriples.train.small.tsv{gz}", "100\t3\t8\n101\t4\t9\n100\t3\t7\n100\t3\t8\n")
    write(home / f"top1000.dev{gz}", "200\t9\tdev query\tpassage 9\n200\t5\tdev query\tpassage 5\n")
    write(home / f"run.bm25.test2019.tsv{gz}", "300\t7\t2\n300\t6\t1\n")
    return home


def test_all_files_of_a_folder_are_read(folder: Path) -> None:
    data = load(folder)
    assert isinstance(data, RankingData)
    assert data.corpus["7"] == 'passage "7"'
    assert sorted(data.queries) == ["100", "101", "200", "201", "300"]
    assert data.qrels == {
        "train": {"100": {"3": 1}, "101": {"4": 1}},
        "dev.small": {"200": {"5": 1}},
        "test2019": {"300": {"6": 3, "7": 0}},
    }
    assert set(data.runs) == {"train", "dev", "dev.small", "test2019"}


def test_orders_become_scores_that_fall_with_the_rank(folder: Path) -> None:
    runs = load_msmarco(folder).runs
    assert runs["dev.small"]["200"] == {"9": -1.0, "5": -2.0}
    assert runs["test2019"]["300"] == {"6": -1.0, "7": -2.0}
    assert dict(runs["train"]["100"]) == {"3": -1.0, "8": -2.0, "7": -3.0}  # positives first, each document once
    assert runs["train"]["101"] == {"4": -1.0, "9": -2.0}
    assert list(runs["train"]) == ["100", "101"]
    assert len(runs["train"]) == 2
    assert "200" not in runs["train"]
    assert "unheard of" not in runs["train"]


def test_candidate_files_are_only_read_when_asked_for(folder: Path) -> None:
    for file in folder.glob("top1000.dev*"):
        file.unlink()
    write(folder / "top1000.dev", "damaged\n")
    data = load_msmarco(folder)
    assert len(data.runs["train"]) == 2
    with pytest.raises(LimbeckError, match=r"top1000\.dev:1: has 1 tab-separated fields, not 4"):
        data.runs["dev"]


def test_triples_are_rows_on_disk_and_iterate_as_ids(folder: Path) -> None:
    data = load_msmarco(folder)
    file = next(folder.glob("qidpidtriples*"))
    for _ in range(2):
        triples = read_triples(file, data.queries, data.corpus)
        assert triples.rows.dtype == np.int32
        assert triples.rows.shape == (4, 3)
        assert list(triples) == [("100", "3", "8"), ("101", "4", "9"), ("100", "3", "7"), ("100", "3", "8")]


def test_rows_are_not_reused_for_another_corpus(folder: Path) -> None:
    data = load_msmarco(folder)
    file = next(folder.glob("qidpidtriples*"))
    read_triples(file, data.queries, data.corpus)
    turned = Texts.from_dict({str(number): "x" for number in reversed(range(10))})
    assert next(iter(read_triples(file, data.queries, turned))) == ("100", "3", "8")


@pytest.mark.parametrize("size", [8, 1 << 20])
@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("999\t3\t8", "names query '999'"),
        ("100\t99\t8", "names document '99'"),
        ("100\t3\t88", "names document '88'"),
        ("100\t3", "has 2 tab-separated fields, not 3"),
        (b"100\t3\t\xff", "is not valid UTF-8"),
    ],
)
def test_a_bad_triple_is_named_with_its_line(
    folder: Path, monkeypatch: pytest.MonkeyPatch, line: str | bytes, problem: str, size: int
) -> None:
    monkeypatch.setattr("limbeck.data.columns.blocks", partial(blocks, size=size))
    data = load_msmarco(folder)
    bad = line if isinstance(line, bytes) else line.encode()
    file = write(folder / "bad.tsv", b"100\t3\t8\n\n101\t4\t9\n" + bad + b"\n101\t4\t8\n")
    with pytest.raises(LimbeckError, match=problem) as caught:
        read_triples(file, data.queries, data.corpus)
    assert str(caught.value).startswith(f"{file}:4: ")


def test_text_triples_are_two_labelled_pairs_a_line(tmp_path: Path) -> None:
    file = write(tmp_path / "triples.train.small.tsv.gz", 'q "1"\tgood\tbad\nq "1"\tgood\tbad 2\n')
    data = load(file)
    assert isinstance(data, PairData)
    assert data.splits == {
        "train": [Pair(('q "1"', "good"), 1), Pair(('q "1"', "bad"), 0), Pair(('q "1"', "bad 2"), 0)]
    }
    for line, problem in (("q\tgood\n", ":1: has 2 tab-separated fields"), ("q\t \tbad\n", ":1: text 2 is empty")):
        with pytest.raises(LimbeckError, match=problem):
            load(write(tmp_path / "triples.bad.tsv", line))


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("collection.tsv", "1\n", r"collection\.tsv:1: has 1 tab-separated fields, not 2"),
        ("collection.tsv", "1\ta\n1\tb\n", "2: duplicate passage id '1', first on line 1"),
        ("queries.train.tsv", "100\tfirst query\n101\t \n", "2: query '101' is empty"),
        ("queries.dev.tsv", "200\tnot the same\n", "query '200' is 'dev query' here and 'not the same' in"),
        ("qrels.train.tsv", "100\t0\t33\t1\n", r"qrels\.train\.tsv:1: names document '33'"),
        ("run.bm25.unknown.tsv", "100\t3\t1\n", "does not end in a split"),
        ("run.other.test2019.tsv", "300\t7\t1\n", "second run for split 'test2019'"),
    ],
)
def test_bad_files_are_named(tmp_path: Path, folder: Path, name: str, content: str, problem: str) -> None:
    (folder / f"{name}.gz").unlink(missing_ok=True)
    write(folder / name, content)
    with pytest.raises(LimbeckError, match=problem):
        load_msmarco(folder)


@pytest.mark.parametrize("kind", ["300 Q0 6 1 2.5 bm25\n300 Q0 7 2 {} bm25\n", "300\t6\t1\n300\t7\t{}\n"])
def test_runs_keep_their_scores_and_refuse_ones_that_are_none(folder: Path, kind: str) -> None:
    for file in folder.glob("run.*"):
        file.unlink()
    write(folder / "run.x.test2019.txt", kind.format("2"))
    assert list(load_msmarco(folder).runs["test2019"]["300"]) == ["6", "7"]
    write(folder / "run.x.test2019.txt", kind.format("nan"))
    with pytest.raises(LimbeckError, match=r"run\.x\.test2019\.txt:2: (score|rank) is nan"):
        load_msmarco(folder).runs["test2019"]


def test_columnar_lists_equal_the_nested_dict() -> None:
    queries = Texts.from_dict({f"q{number}": "x" for number in range(50)})
    corpus = Texts.from_dict({f"d{number}": "x" for number in range(30)})
    generator = np.random.default_rng(0)
    asked, listed = generator.integers(0, 50, 400), generator.integers(0, 30, 400)
    scores = generator.normal(size=400)
    expected: dict[str, dict[str, float]] = {}
    for query, document, score in zip(asked, listed, scores, strict=True):
        expected.setdefault(f"q{query}", {}).setdefault(f"d{document}", float(score))
    lists = CandidateLists.scored(queries, corpus, asked, listed, scores)
    assert {query: dict(found) for query, found in lists.items()} == expected
    assert {query: list(found) for query, found in lists.items()} == {q: list(d) for q, d in expected.items()}
