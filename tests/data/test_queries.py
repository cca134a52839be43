"""Files of texts without judgements: queries of a log, documents on their own."""

from __future__ import annotations

import gzip
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from limbeck.data import RankingData, Texts
from limbeck.data.queries import read_queries, read_unlabelled
from limbeck.errors import LimbeckError
from limbeck.progress import reporting
from limbeck.training.annotate import with_queries

TEXTS = ["copy a file", "sort, quickly", "open a path"]


class Heard:
    """Keeps what is said."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def task(self, label, total):
        raise AssertionError("a small file shows no progress")

    def say(self, message: str) -> None:
        self.lines.append(message)


def write(folder, suffix, texts=TEXTS):
    path = folder / f"logged{suffix}"
    if suffix == ".parquet":
        pq.write_table(pa.table({"text": texts}), path)
    elif suffix == ".csv":
        path.write_text("text\n" + "".join(f'"{text}"\n' for text in texts))
    elif suffix == ".jsonl":
        path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    elif suffix == ".tsv":
        path.write_text("".join(f"{number}\t{text}\n" for number, text in enumerate(texts)))
    elif suffix == ".txt.gz":
        path.write_bytes(gzip.compress("\n".join(texts).encode()))
    else:
        path.write_text("\n\n".join(texts) + "\n")
    return path


@pytest.mark.parametrize("suffix", [".txt", ".txt.gz", ".jsonl", ".csv", ".tsv", ".parquet"])
def test_every_kind_of_file_gives_the_same_texts(tmp_path, suffix):
    path = write(tmp_path, suffix)
    assert read_unlabelled(path) == TEXTS
    found = read_queries(path)
    assert [text for _, text in found.items()] == TEXTS
    assert len(set(found)) == 3


def test_texts_without_ids_are_called_after_file_and_line(tmp_path):
    assert list(read_queries(write(tmp_path, ".txt"))) == ["logged-1", "logged-3", "logged-5"]
    assert list(read_queries(write(tmp_path, ".jsonl"))) == ["logged-1", "logged-2", "logged-3"]


def test_ids_and_titles_of_a_table_are_kept(tmp_path):
    path = tmp_path / "docs.csv"
    path.write_text("id,title,text\n7,Copy,Use shutil.\n8,,Sort it.\n")
    assert dict(read_queries(path, "document").items()) == {"7": "Copy Use shutil.", "8": "Sort it."}
    assert read_unlabelled(path) == ["Copy Use shutil.", "Sort it."]


def test_duplicates_are_left_out_and_counted(tmp_path):
    path = write(tmp_path, ".txt", ["copy a file", "Copy  a file", "sort", "copy a file"])
    heard = Heard()
    with reporting(heard):
        assert read_unlabelled(path, "query") == ["copy a file", "sort"]
    assert heard.lines == [f"{path}: 2 of 4 queries are duplicates and are left out"]
    assert len(read_queries(path)) == 4  # whoever searches for queries wants an answer to each


def test_empty_documents_are_passed_over_and_empty_queries_refused(tmp_path):
    path = write(tmp_path, ".jsonl", ["copy", " ", "sort"])
    assert read_unlabelled(path, "document") == ["copy", "sort"]
    with pytest.raises(LimbeckError, match=r"logged.jsonl:2: the query is empty"):
        read_queries(path)


@pytest.mark.parametrize("suffix", [".txt", ".jsonl", ".csv", ".tsv", ".parquet"])
def test_an_empty_file_is_a_one_line_error(tmp_path, suffix):
    path = write(tmp_path, suffix, pa.array([], pa.string()) if suffix == ".parquet" else [])
    with pytest.raises(LimbeckError, match=rf"logged{suffix}: contains no query; write one query per line"):
        read_queries(path)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.txt", '{"text": "copy"}\n', "a.txt:1: is JSON where a text is expected; name the file .jsonl"),
        ("a.csv", "question\ncopy\n", "a.csv:2: has no `text`, but question; call the column of the texts text"),
        ("a.jsonl", '{"text": "a"}\n{"text": 3}\n', "a.jsonl:2: a text is a number, not a string"),
        ("a.jsonl", '{"text": "a"}\n{"_id": null, "text": "b"}\n', "a.jsonl:2: `_id` is null, not a string"),
        ("a.txt", " \n\n", "a.txt: contains no text; write one text per line"),
        ("a.pdf", "copy", "a.pdf: is not a file of texts that limbeck knows; give a .jsonl"),
        ("a.jsonl", '{"text": ""}\n', "a.jsonl: all of its texts are empty; write one text per line"),
    ],
)
def test_mistakes_are_named_with_their_line(tmp_path, name, content, message):
    (tmp_path / name).write_text(content)
    with pytest.raises(LimbeckError) as raised:
        read_unlabelled(tmp_path / name)
    assert message in str(raised.value)


def data():
    return RankingData("mine", Texts.from_dict({"d": "x"}), Texts.from_dict({"q1": "copy a file", "q2": "sort"}), {})


def test_further_queries_to_train_on_are_new_ones(tmp_path):
    path = write(tmp_path, ".txt", ["Copy a  file", "close it", "close it", "sort"])
    heard = Heard()
    with reporting(heard):
        both, new = with_queries(data(), path)
    assert [both.queries[key] for key in new] == ["close it"]
    assert len(both.queries) == 3
    assert heard.lines == [
        f"{path}: 1 of 4 queries are duplicates and are left out",
        f"{path}: 2 of 3 queries are already in the data set and are left out",
    ]
    assert len(with_queries(data(), path, every=True)[1]) == 4


def test_a_file_of_known_queries_only_is_refused(tmp_path):
    path = write(tmp_path, ".txt", ["copy a file"])
    with pytest.raises(LimbeckError, match=r"all of its queries are already in mine; give other queries"):
        with_queries(data(), path)
