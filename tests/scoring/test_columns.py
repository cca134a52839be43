"""What the result shows of the user's list, and how it is read."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from limbeck.errors import LimbeckError
from limbeck.scoring import distinct
from limbeck.scoring.distinct import DistinctTexts, open_distinct
from limbeck.scoring.job import score_pairs
from tests.scoring.test_job import ONE, listed, model, result, sides_of, texts  # noqa: F401

OTHERS = {"label": 1, "score": 0.5, "tags": ["a", "b"], "source": None, "mixed": "x"}


@pytest.fixture
def rows(texts, listed):  # noqa: F811
    found = [{"text_a": texts["left"][left], "text_b": texts["right"][right], **OTHERS} for left, right in listed]
    found[7]["mixed"], found[8]["source"] = 7, {"page": 3}
    return found


def write(path, rows):
    if path.suffix == ".parquet":
        plain = [{**row, "mixed": str(row["mixed"]), "source": json.dumps(row["source"])} for row in rows]
        pq.write_table(pa.Table.from_pylist(plain), path)
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_a_list_with_texts_gives_its_texts_back(model, rows, tmp_path):  # noqa: F811
    score_pairs(model, write(tmp_path / "pairs.jsonl", rows), tmp_path / "out", ONE, shard=40)
    found = result(tmp_path / "out")
    assert list(found[0]) == ["pair", "text_a", "text_b", "score"]
    assert [(row["text_a"], row["text_b"]) for row in found] == [(row["text_a"], row["text_b"]) for row in rows]


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_all_columns_of_a_list_are_copied_with_their_types(model, rows, tmp_path, suffix):  # noqa: F811
    file = write(tmp_path / f"pairs.{suffix}", rows)
    score_pairs(model, file, tmp_path / "out", ONE, shard=40, columns="all")
    found = result(tmp_path / "out")
    assert list(found[0]) == ["pair", "text_a", "text_b", "label", "list_score", "tags", "source", "mixed", "score"]
    assert all(row["label"] == 1 and row["list_score"] == 0.5 and row["tags"] == ["a", "b"] for row in found)
    assert [row["mixed"] for row in found] == [str(row["mixed"]) for row in rows]
    assert json.loads(found[8]["source"]) == {"page": 3} and found[0]["source"] in (None, "null")


def test_columns_are_chosen_by_name_and_follow_their_pairs(model, texts, listed, tmp_path):  # noqa: F811
    file = tmp_path / "pairs.csv"
    lines = [f"{left},{right},note {at}" for at, (left, right) in enumerate(listed)]
    file.write_text("\n".join(["query_id,document_id,note", *lines]) + "\n")
    ask = {**sides_of(tmp_path), "shard": 30}
    for name, columns, wanted in (
        ("default", None, ["pair", "left", "right", "score"]),
        ("none", "none", ["pair", "score"]),
        ("some", "document_id, note", ["pair", "right", "note", "score"]),
    ):
        score_pairs(model, file, tmp_path / name, ONE, **ask, columns=columns)
        assert list(result(tmp_path / name)[0]) == wanted
    assert [row["note"] for row in result(tmp_path / "some")] == [f"note {at}" for at in range(90)]
    score_pairs(model, file, tmp_path / "best", ONE, **ask, columns="note", top_k=2)
    assert all(row["note"] == f"note {row['pair']}" for row in result(tmp_path / "best"))
    with pytest.raises(LimbeckError, match="--columns nota: there is no such column; did you mean 'note'?"):
        score_pairs(model, file, tmp_path / "bad", ONE, **ask, columns="nota")
    assert not (tmp_path / "bad").exists()
    with pytest.raises(LimbeckError, match="contains another job .columns differs."):
        score_pairs(model, file, tmp_path / "some", ONE, **ask)


def test_a_list_of_texts_in_one_column_gives_numbered_texts(model, rows, tmp_path):  # noqa: F811
    packed = [{"texts": [row["text_a"], row["text_b"]], "label": 1} for row in rows]
    score_pairs(model, write(tmp_path / "pairs.jsonl", packed), tmp_path / "out", ONE, columns="texts,label")
    first = result(tmp_path / "out")[0]
    assert list(first) == ["pair", "text_1", "text_2", "label", "score"] and first["text_1"] == rows[0]["text_a"]


def test_everything_against_everything_has_ids_and_no_columns(model, texts, tmp_path):  # noqa: F811
    score_pairs(model, None, tmp_path / "out", ONE, **sides_of(tmp_path), top_k=1, columns="right")
    assert list(result(tmp_path / "out")[0]) == ["pair", "rank", "right", "score"]
    with pytest.raises(LimbeckError, match="--columns label: there is no such column; known: left, right"):
        score_pairs(model, None, tmp_path / "bad", ONE, **sides_of(tmp_path), columns="label")


def test_the_jobs_folder_reads_as_one_table(model, rows, tmp_path):  # noqa: F811
    score_pairs(model, write(tmp_path / "pairs.jsonl", rows), tmp_path / "out", ONE, shard=40, columns="all")
    pandas = pytest.importorskip("pandas")
    for folder in (tmp_path / "out", tmp_path / "out" / "scores"):
        assert ds.dataset(folder).to_table()["pair"].to_pylist() == list(range(90))
        frame = pandas.read_parquet(folder)
        assert list(frame["text_a"]) == [row["text_a"] for row in rows]


def test_distinct_texts_get_rows_in_the_order_of_their_appearance(tmp_path, monkeypatch):
    """With runs so short that they are merged, and lie in files, many times."""
    monkeypatch.setattr(distinct, "_ON_DISK", 8)
    monkeypatch.setattr(distinct, "_LONGEST", 64)
    generator = np.random.default_rng(0)
    column = [f"text {number}" for number in generator.integers(0, 300, size=2000)]
    known = DistinctTexts(tmp_path / "texts.arrow")
    rows = np.concatenate([known.rows(column[start : start + 13]) for start in range(0, 2000, 13)])
    known.close()
    order = {text: row for row, text in enumerate(dict.fromkeys(column))}
    assert rows.tolist() == [order[text] for text in column]
    assert open_distinct(tmp_path / "texts.arrow").take(range(len(order))) == list(order)
    assert [file.name for file in tmp_path.iterdir()] == ["texts.arrow"]
