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


def test_a_pair_set_gets_the_neighbours_of_its_training_texts(beir, tmp_path):
    build_pairs(str(beir), tmp_path / "pairs")
    known = {(row["text_a"], row["text_b"]) for row in rows_of(tmp_path / "pairs" / "train.jsonl")}
    with pytest.raises(LimbeckError, match="holds pairs already; add --how neighbours"):
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
    with pytest.raises(LimbeckError, match="neighbours need a threshold for negatives; give --below"):
        build_pairs(str(beir), tmp_path / "a", "neighbours")
    build_pairs(str(beir), tmp_path / "a")
    with pytest.raises(LimbeckError, match="choose another --out"):
        build_pairs(str(beir), tmp_path / "a")
    with pytest.raises(LimbeckError, match="holds pairs already"):
        build_pairs(str(tmp_path / "a"), tmp_path / "b")
