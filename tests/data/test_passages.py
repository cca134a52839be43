from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from limbeck.data.passages import iterate_ids, load_passages, load_texts
from limbeck.errors import LimbeckError


def write(path: Path, records: list[dict]) -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def test_further_keys_of_a_line_are_fields(tmp_path: Path) -> None:
    records = [
        {"_id": "a", "text": "one", "year": 2020, "metadata": {"site": "x", "deep": {"er": 1}}, "tags": ["s", 3]},
        {"_id": "b", "title": "t", "text": "two", "year": 2020.5, "open": True, "mixed": 1},
        {"_id": "c", "text": "three", "mixed": "text", "huge": 10**30, "none": None, "half": "\ud800"},
    ]
    found = load_passages(write(tmp_path / "corpus.jsonl", records))
    assert list(found.corpus) == ["a", "b", "c"] and found.queries is None
    assert found.fields.to_pylist() == [
        {"year": 2020.0, "metadata.site": "x", "metadata.deep.er": 1, "tags": ["s", "3"], "open": None, "mixed": None,
         "huge": None, "none": None, "half": None},
        {"year": 2020.5, "metadata.site": None, "metadata.deep.er": None, "tags": None, "open": True, "mixed": "1",
         "huge": None, "none": None, "half": None},
        {"year": None, "metadata.site": None, "metadata.deep.er": None, "tags": None, "open": None, "mixed": "text",
         "huge": str(10**30), "none": None, "half": "?"},
    ]  # fmt: skip


def test_fields_may_first_appear_after_thousands_of_lines(tmp_path: Path) -> None:
    records = [{"_id": str(number), "text": "x"} for number in range(8193)]
    records[-1] |= {"late": "yes"}
    records[0] |= {"early": 1}
    fields = load_passages(write(tmp_path / "corpus.jsonl", records)).fields
    assert len(fields) == 8193
    assert fields["late"].null_count == fields["early"].null_count == 8192
    assert fields["late"][8192].as_py() == "yes"


def test_a_folder_has_queries_too_and_passages_need_no_fields(tmp_path: Path) -> None:
    write(tmp_path / "corpus.jsonl", [{"_id": "a", "text": "one", "metadata": {}}])
    write(tmp_path / "queries.jsonl", [{"_id": "q", "text": "what"}])
    found = load_passages(tmp_path)
    assert found.fields is None and list(found.queries) == ["q"]


def test_other_forms(tmp_path: Path) -> None:
    (tmp_path / "collection.tsv").write_text("7\tsome text\n8\tmore\n")
    assert load_passages(tmp_path / "collection.tsv").corpus["8"] == "more"
    write(tmp_path / "train.jsonl", [{"text_a": "x", "text_b": "y", "label": 1}])
    with pytest.raises(LimbeckError, match=r"train\.jsonl:1: the document has no `_id`"):
        load_passages(tmp_path / "train.jsonl")
    (tmp_path / "pairs").mkdir()
    write(tmp_path / "pairs" / "train.jsonl", [{"text_a": "x", "text_b": "y", "label": 1}])
    with pytest.raises(LimbeckError, match="contains pairs, not passages"):
        load_passages(tmp_path / "pairs")


def test_ids_are_read_from_lines_and_from_records(tmp_path: Path) -> None:
    (tmp_path / "ids.txt").write_text("a\n\n  b c \n")
    assert list(iterate_ids(tmp_path / "ids.txt")) == ["a", "b c"]
    write(tmp_path / "gone.jsonl", [{"_id": "a", "text": "x"}, {"_id": 7}])
    assert list(iterate_ids(tmp_path / "gone.jsonl")) == ["a", "7"]
    with pytest.raises(LimbeckError, match=r"gone\.jsonl:1: `_id` is null"):
        list(iterate_ids(write(tmp_path / "gone.jsonl", [{"text": "x"}])))


def test_texts_may_be_in_a_table(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('id,text,title\n7,"one, two",\nb,three,four\n')
    assert dict(load_texts(tmp_path / "a.csv").items()) == {"7": "one, two", "b": "four three"}
    pq.write_table(pa.table({"_id": [1, 2], "text": ["x", ""]}), tmp_path / "a.parquet")
    assert dict(load_texts(tmp_path / "a.parquet").items()) == {"1": "x", "2": ""}
    assert list(load_texts(write(tmp_path / "a.jsonl", [{"_id": "a", "text": "one"}]))) == ["a"]


def test_what_is_wrong_with_a_table_of_texts_is_named(tmp_path: Path) -> None:
    def refused(words: str, content: str) -> None:
        (tmp_path / "bad.csv").write_text(content)
        with pytest.raises(LimbeckError, match=words):
            load_texts(tmp_path / "bad.csv")

    refused("bad.csv:2: has the columns key, words; call the columns id and text", "key,words\n1,x\n")
    refused("duplicate text id '1'; give every text a different id", "id,text\n1,x\n1,y\n")
    refused("bad.csv: contains no texts", "id,text\n")
    pq.write_table(pa.table({"id": ["a"], "text": [3]}), tmp_path / "bad.parquet")
    with pytest.raises(LimbeckError, match="bad.parquet:1: a text of 'a' is a number; write it as a string"):
        load_texts(tmp_path / "bad.parquet")
    with pytest.raises(LimbeckError, match="nope.jsonl: no such file or folder; check the path"):
        load_texts("nope.jsonl")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('{"_id": "d1"}', "is JSON where an id is expected"),
        ('{"_id": "d1", "te', "is JSON where an id is expected"),
        ("d\x001", "a character that is not allowed in ids"),
    ],
)
def test_a_line_that_is_not_an_id_is_named(tmp_path, line, words):
    (tmp_path / "ids.txt").write_text(f"d0\n{line}\n")
    with pytest.raises(LimbeckError, match=f"ids.txt:2: .*{words}"):
        list(iterate_ids(tmp_path / "ids.txt"))


def test_ids_may_have_spaces_and_brackets(tmp_path):
    (tmp_path / "ids.txt").write_text("a b\n[12]\n{x}\n")
    assert list(iterate_ids(tmp_path / "ids.txt")) == ["a b", "[12]", "{x}"]
