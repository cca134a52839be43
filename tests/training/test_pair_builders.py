"""Pair sets out of a ranking set."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from limbeck.data import PairData, load
from limbeck.errors import LimbeckError
from limbeck.search.sparse import bm25_candidates
from limbeck.training.pair_builders import build_pairs


def rows_of(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_every_positive_has_one_negative_of_bm25(beir, tmp_path):
    data = load(str(beir))
    built = build_pairs(str(beir), tmp_path / "pairs")
    assert built.counts == {"train": 36, "dev": 12, "test": 12}
    assert isinstance(load(str(tmp_path / "pairs")), PairData)
    texts = {text: key for key, text in data.corpus.items()}
    asked = {text: key for key, text in data.queries.items()}
    found = bm25_candidates(data, list(data.queries), 100)
    for split in ("train", "dev", "test"):
        for row in rows_of(tmp_path / "pairs" / f"{split}.jsonl"):
            query, document = asked[row["text_a"]], texts[row["text_b"]]
            assert row["label"] == data.qrels[split][query].get(document, 0)
            assert row["label"] or document in found[query]
    again = build_pairs(str(beir), tmp_path / "again")
    assert again.counts == built.counts
    assert (tmp_path / "again" / "train.jsonl").read_text() == (tmp_path / "pairs" / "train.jsonl").read_text()
    build_pairs(str(beir), tmp_path / "other", seed=1)
    assert (tmp_path / "other" / "train.jsonl").read_text() != (tmp_path / "pairs" / "train.jsonl").read_text()


def test_neighbours_below_a_threshold_are_negatives_and_training_queries_have_a_transfer_set(beir, tmp_path):
    data = load(str(beir))
    build_pairs(str(beir), tmp_path / "pairs", "neighbours", below=2.0, hard=10, near=5)
    asked = {text: key for key, text in data.queries.items()}
    texts = {text: key for key, text in data.corpus.items()}
    found = bm25_candidates(data, list(data.queries), 10)
    negatives = [row for row in rows_of(tmp_path / "pairs" / "train.jsonl") if not row["label"]]
    assert 0 < len(negatives) <= 18
    for row in negatives:
        assert found[asked[row["text_a"]]][texts[row["text_b"]]] < 2.0
    transfer = rows_of(tmp_path / "pairs" / "transfer.jsonl")
    assert {asked[row["text_a"]] for row in transfer} == set(data.qrels["train"])
    assert all("label" not in row for row in transfer) and len(transfer) <= 18 * 5


def test_judgements_become_grades_and_titles_become_separate_texts(tmp_path):
    (tmp_path / "qrels").mkdir()
    documents = [{"_id": f"d{n}", "title": f"title {n}", "text": f"body {n}"} for n in range(4)]
    queries = [{"_id": f"q{n}", "text": f"query {n}"} for n in range(2)]
    for name, rows in (("corpus", documents), ("queries", queries)):
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    head = "query-id\tcorpus-id\tscore\n"
    (tmp_path / "qrels" / "train.tsv").write_text(f"{head}q0\td0\t3\nq0\td1\t2\nq0\td2\t0\n")
    (tmp_path / "qrels" / "test.tsv").write_text(f"{head}q1\td3\t1\nq1\td2\t-1\n")
    built = build_pairs(str(tmp_path), tmp_path / "pairs", "judged", titles=True)
    assert built.counts == {"train": 3, "test": 2}
    assert rows_of(tmp_path / "pairs" / "train.jsonl")[1] == {
        "text_a": "query 0",
        "text_b": "title 1",
        "text_c": "body 1",
        "label": 0.6667,
    }
    assert [row["label"] for row in rows_of(tmp_path / "pairs" / "test.jsonl")] == [0.3333, 0]  # of the same scale
    assert {len(pair.texts) for pair in load(str(tmp_path / "pairs")).splits["train"]} == {3}
    whole = build_pairs(str(tmp_path), tmp_path / "whole", "judged")
    assert rows_of(whole.folder / "train.jsonl")[0]["text_b"] == "title 0 body 0"


def test_a_document_without_a_title_has_its_text_in_both_places(beir, tmp_path):
    build_pairs(str(beir), tmp_path / "pairs", titles=True)
    rows = rows_of(tmp_path / "pairs" / "train.jsonl")
    assert rows and all(row["text_b"] == row["text_c"] != "" for row in rows)


def test_a_pair_set_gets_the_neighbours_of_its_training_texts(beir, tmp_path):
    build_pairs(str(beir), tmp_path / "pairs")
    known = {(row["text_a"], row["text_b"]) for row in rows_of(tmp_path / "pairs" / "train.jsonl")}
    with pytest.raises(LimbeckError, match="contains pairs already; add --how neighbours"):
        build_pairs(str(tmp_path / "pairs"), tmp_path / "more")
    built = build_pairs(str(tmp_path / "pairs"), tmp_path / "more", "neighbours", near=4)
    rows = rows_of(tmp_path / "more" / "transfer.jsonl")
    assert built.counts == {"transfer": len(rows)} and rows
    assert not known & {(row["text_a"], row["text_b"]) for row in rows}
    assert {row["text_a"] for row in rows} <= {left for left, _ in known}
    assert {row["text_b"] for row in rows} <= {right for _, right in known}
    count = Counter(row["text_a"] for row in rows)
    assert max(count.values()) <= 4
    assert load(str(tmp_path / "more" / "transfer.jsonl")).splits


def test_what_cannot_be_paired_is_refused(beir, tmp_path):
    with pytest.raises(LimbeckError, match="--how q2q: unknown; did you mean 'q2p'"):
        build_pairs(str(beir), tmp_path / "a", "q2q")
    with pytest.raises(LimbeckError, match="--how neighbours requires --below"):
        build_pairs(str(beir), tmp_path / "a", "neighbours")
    for how, option in (("q2p", "below"), ("q2p", "near"), ("judged", "hard"), ("judged", "model")):
        with pytest.raises(LimbeckError, match=f"--{option}: has no effect for {how}; leave it out"):
            build_pairs(str(beir), tmp_path / "a", how, **{option: 1})
    build_pairs(str(beir), tmp_path / "a")
    with pytest.raises(LimbeckError, match="--below: has no effect for neighbours of a pair set"):
        build_pairs(str(tmp_path / "a"), tmp_path / "b", "neighbours", below=0.5)
    with pytest.raises(LimbeckError, match="already exists and limbeck did not write it; choose another --out"):
        build_pairs(str(beir), beir)
    with pytest.raises(LimbeckError, match="contains pairs already"):
        build_pairs(str(tmp_path / "a"), tmp_path / "b")


@pytest.mark.parametrize("options", [{}, {"how": "judged"}, {"how": "neighbours", "below": 2.0}])
def test_a_finished_folder_is_accepted_by_the_same_call_and_refused_by_another(beir, tmp_path, options):
    built = build_pairs(str(beir), tmp_path / "pairs", **options)
    before = {file.name: file.stat().st_mtime_ns for file in built.folder.iterdir()}
    assert build_pairs(str(beir), tmp_path / "pairs", **options) == built
    assert {file.name: file.stat().st_mtime_ns for file in built.folder.iterdir()} == before
    with pytest.raises(LimbeckError, match="contains pairs that were made with another seed; choose another --out"):
        build_pairs(str(beir), tmp_path / "pairs", seed=3, **options)


def test_a_finished_folder_of_pairs_of_a_pair_set_is_accepted_too(beir, tmp_path):
    build_pairs(str(beir), tmp_path / "pairs")
    first = build_pairs(str(tmp_path / "pairs"), tmp_path / "more", "neighbours", near=3)
    assert build_pairs(str(tmp_path / "pairs"), tmp_path / "more", "neighbours", near=3) == first


def test_every_reader_names_a_damaged_pair_file(beir, tmp_path):
    build_pairs(str(beir), tmp_path / "pairs", "neighbours", below=2.0)
    for name in ("train.jsonl", "transfer.jsonl"):
        file = tmp_path / "pairs" / name
        whole = file.read_text()
        file.write_text(whole.replace('"text_a": "', '"text_a": "x', 1))
        for read in (
            lambda: load(str(tmp_path / "pairs")),
            lambda file=file: load(str(file)),
            lambda: build_pairs(str(beir), tmp_path / "pairs", "neighbours", below=2.0),
        ):
            with pytest.raises(
                LimbeckError, match=f"{name}: has changed since `limbeck pairs` wrote it; make the folder"
            ):
                read()
        file.write_text(whole)
    (tmp_path / "pairs" / "limbeck-files.json").unlink()
    with pytest.raises(LimbeckError, match="contains pairs of an earlier version of limbeck, without checksums"):
        build_pairs(str(beir), tmp_path / "pairs", "neighbours", below=2.0)
    assert load(str(tmp_path / "pairs")).splits
