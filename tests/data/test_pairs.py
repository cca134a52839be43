from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from limbeck.data import PairData, load
from limbeck.data.dataset import Pair
from limbeck.data.pairs import load_pairs
from limbeck.errors import LimbeckError
from tests.data.folders import jsonl, write


def only(data: PairData) -> list[Pair]:
    (pairs,) = data.splits.values()
    return pairs


@pytest.mark.parametrize(
    "record",
    [
        {"text_a": "x", "text_b": "y"},
        {"text1": "x", "text2": "y"},
        {"sentence1": "x", "sentence2": "y"},
        {"sentence_a": "x", "sentence_b": "y"},
        {"query": "x", "document": "y"},
        {"texts": ["x", "y"]},
        {"id": 7, "text_b": "y", "source": "web", "text_a": "x"},
    ],
)
def test_the_usual_names_of_texts_are_known(tmp_path: Path, record: dict[str, object]) -> None:
    data = load_pairs(write(tmp_path / "a.jsonl", jsonl([record | {"label": 1}])))
    assert only(data) == [Pair(("x", "y"), 1)]


def test_more_than_two_texts_stay_in_order(tmp_path: Path) -> None:
    lettered = jsonl([{"text_a": "1", "text_b": "2", "text_c": "3"}])
    numbered = jsonl([{f"text{number}": str(number) for number in range(1, 13)}])
    assert only(load_pairs(write(tmp_path / "a.jsonl", lettered)))[0].texts == ("1", "2", "3")
    assert only(load_pairs(write(tmp_path / "b.jsonl", numbered)))[0].texts == tuple(map(str, range(1, 13)))


@pytest.mark.parametrize(
    ("labels", "expected", "classes"),
    [
        ([0, 2, 1], [0, 2, 1], None),
        ([True, False], [1, 0], None),
        (["no", "yes", "maybe"], [1, 2, 0], ["maybe", "no", "yes"]),
        (["0", "1"], [0, 1], None),
        ([0.5, 1, 0], [0.5, 1.0, 0.0], None),
        ([[0.1, 0.9], [1, 0]], [(0.1, 0.9), (1.0, 0.0)], None),
        ([None, None], [None, None], None),
    ],
)
def test_the_type_of_labels_depends_on_all_of_them(tmp_path: Path, labels, expected, classes) -> None:
    records = [{"text_a": "x", "text_b": "y", "label": label} for label in labels]
    data = load_pairs(write(tmp_path / "a.jsonl", jsonl(records)))
    found = [pair.label for pair in only(data)]
    assert found == expected
    assert [type(label) for label in found] == [type(label) for label in expected]
    assert data.classes == classes


@pytest.mark.parametrize("name", ["score", "labels"])
def test_labels_may_have_other_names(tmp_path: Path, name: str) -> None:
    assert only(load_pairs(write(tmp_path / "a.jsonl", jsonl([{"texts": ["x", "y"], name: 0.25}]))))[0].label == 0.25


def test_all_file_kinds_say_the_same(tmp_path: Path) -> None:
    rows = [("a, b", "c", "yes"), ("d", "e f", "no")]
    columns = dict(zip(("sentence1", "sentence2", "label"), zip(*rows, strict=True), strict=True))
    pq.write_table(pa.table({name: list(column) for name, column in columns.items()}), tmp_path / "p.parquet")
    write(tmp_path / "p.csv.gz", 'sentence1,sentence2,label\n"a, b",c,yes\nd,e f,no\n')
    write(tmp_path / "p.tsv", "sentence1\tsentence2\tlabel\n" + "".join("\t".join(row) + "\n" for row in rows))
    write(tmp_path / "p.jsonl", jsonl([dict(zip(columns, row, strict=True)) for row in rows]))
    expected = [Pair(("a, b", "c"), 1), Pair(("d", "e f"), 0)]
    for name in ("p.parquet", "p.csv.gz", "p.tsv", "p.jsonl"):
        data = load(tmp_path / name)
        assert isinstance(data, PairData)
        assert (data.name, only(data), data.classes) == ("p", expected, ["no", "yes"])


def test_csv_quotes_may_span_lines_and_tsv_takes_quotes_as_they_stand(tmp_path: Path) -> None:
    quoted = write(tmp_path / "a.csv", 'text_a,text_b,label\n"one\n\ntwo ""2""",y,0.5\nz,w,1\n')
    assert only(load_pairs(quoted))[0] == Pair(('one\n\ntwo "2"', "y"), 0.5)
    raw = write(tmp_path / "a.tsv", 'text_a\ttext_b\n"half a quote\ty\n')
    assert only(load_pairs(raw))[0].texts == ('"half a quote', "y")


def test_a_very_long_text_in_csv_is_read(tmp_path: Path) -> None:
    file = write(tmp_path / "a.csv", f"text_a,text_b\n{'x' * 300_000},y\n")
    assert len(only(load_pairs(file))[0].texts[0]) == 300_000


def test_a_folder_gives_splits_in_order_with_classes_over_all(tmp_path: Path) -> None:
    for name, label in (("test.csv", "b"), ("validation.csv", "c"), ("train.csv", "a")):
        write(tmp_path / "set" / name, f"text_a,text_b,label\nx,y,{label}\n")
    data = load(tmp_path / "set")
    assert isinstance(data, PairData)
    assert data.splits == {
        "train": [Pair(("x", "y"), 0)],
        "dev": [Pair(("x", "y"), 2)],
        "test": [Pair(("x", "y"), 1)],
    }
    assert (data.name, data.classes, list(data.splits)) == ("set", ["a", "b", "c"], ["train", "dev", "test"])
    with pytest.raises(LimbeckError, match="set has no split 'tset'; did you mean 'test'"):
        data.split("tset")


def test_the_name_of_a_single_file_says_its_split(tmp_path: Path) -> None:
    row = jsonl([{"texts": ["x", "y"]}])
    assert list(load_pairs(write(tmp_path / "test.jsonl", row)).splits) == ["test"]
    assert list(load_pairs(write(tmp_path / "mine.jsonl.gz", row)).splits) == ["train"]


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("a.jsonl", '{"texts": ["x", "y"]}\n{"text": "x"}\n', ":2: has no two texts in its columns text"),
        ("a.jsonl", '{"texts": ["x"]}\n', ":1: has no two texts"),
        ("a.jsonl", '{"texts": ["x", 3]}\n', ":1: text 2 is a number"),
        ("a.jsonl", '{"texts": ["x", " "]}\n', ":1: text 2 is empty"),
        ("a.jsonl", '{"texts": ["x", "y"]}\n{"texts": ["x", "y", "z"]}\n', ":2: has 3 texts where line 1 has 2"),
        ("a.jsonl", '{"texts": ["x", "y"], "label": NaN}\n', ":1: label is nan"),
        ("a.jsonl", '{"texts": ["x", "y"], "label": [1, Infinity]}\n', ":1: label is inf"),
        ("a.jsonl", '{"texts": ["x", "y"], "label": {}}\n', ":1: label is an object"),
        ("a.jsonl", '{"texts": ["x", "y"], "label": 1}\n\n{"texts": ["x", "y"]}\n', ":3: has no label, unlike line 1"),
        ("a.jsonl", '{"texts": ["x", "y"], "label": [1, 0]}\n{"texts": ["x", "y"], "label": [1]}\n', ":2: its label"),
        ("a.jsonl", '{"texts": ["x", "y"], "label": "a"}\n{"texts": ["x", "y"], "label": 2}\n', ":2: label 2 is a num"),
        ("a.jsonl", "{}\n", "has no"),
        ("a.csv", "text_a,text_b\nx\n", ":2: has 1 fields where the first line has 2"),
        ("a.csv", 'text_a,text_b\nx,y\n\n"x,y\n', ":4: has wrong quotes"),
        ("a.csv", "text_a,text_b\n", "contains no pairs"),
        ("a.tsv", "text_a\ttext_b\n\nx\ty\tz\n", ":3: has 3 fields"),
        ("a.parquet", "no parquet", "is not a complete parquet file"),
        ("a.docx", "x", "is not a data set that limbeck knows"),
    ],
)
def test_bad_rows_are_named_with_their_line(tmp_path: Path, name: str, content: str, problem: str) -> None:
    with pytest.raises(LimbeckError, match=problem) as caught:
        load(write(tmp_path / name, content))
    assert str(caught.value).startswith(str(tmp_path / name))
    assert "\n" not in str(caught.value)


def test_two_files_for_one_split_are_refused(tmp_path: Path) -> None:
    for name in ("train.csv", "train.jsonl"):
        write(tmp_path / "set" / name, "x")
    with pytest.raises(LimbeckError, match=r"train\.jsonl: is a second file for split 'train', next to train\.csv"):
        load(tmp_path / "set")


@pytest.mark.parametrize(("name", "sizes"), [("snli_20k", (8811, 1031, 9824)), ("wdc_products", (19820, 4939, 4251))])
def test_public_pair_sets_have_their_published_sizes(shared_data, name: str, sizes: tuple[int, ...]) -> None:
    data = load(shared_data(name))
    assert isinstance(data, PairData)
    assert tuple(map(len, data.splits.values())) == sizes
