from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from limbeck.errors import LimbeckError
from limbeck.matchers import DualEncoder
from limbeck.search.build import build_index
from limbeck.search.changes import add_passages, compact_index, delete_passages
from limbeck.search.index import SearchIndex
from limbeck.search.milvus import Address, MilvusIndex, fill_collection
from tests.search.conftest import make_corpus, passages_of
from tests.search.test_changes import assert_same
from tests.search.test_dense import Array, brute_force


def test_addresses() -> None:
    assert Address.parse("milvus://localhost:19530/things") == Address("http://localhost:19530", "things")
    assert Address.parse("milvus:///tmp/a.db") == Address("/tmp/a.db", "limbeck")
    for wrong in ("milvus://localhost:19530", "milvus:///tmp/a", "milvus://host/1bad", "milvus://"):
        with pytest.raises(LimbeckError, match="milvus"):
            Address.parse(wrong)


def test_a_kind_that_milvus_lacks_is_refused_before_anything_is_written(
    model: DualEncoder, corpus: dict[str, str], tmp_path: Path
) -> None:
    pytest.importorskip("pymilvus", reason="needs the extra milvus")
    with pytest.raises(LimbeckError, match="Milvus has no index of kind 'sq8' here; use flat, hnsw, ivf-sq8"):
        build_index(model, passages_of(corpus), tmp_path / "index", kind="sq8", store=f"milvus://{tmp_path}/a.db")
    assert not (tmp_path / "index").exists() and not (tmp_path / "a.db").exists()


def test_a_server_that_does_not_answer_is_named() -> None:
    pytest.importorskip("pymilvus", reason="needs the extra milvus")
    with pytest.raises(LimbeckError, match="milvus://127.0.0.1:1/things: Milvus says: .*; check the address"):
        MilvusIndex("milvus://127.0.0.1:1/things", np.arange(3), 4, "flat")


@pytest.fixture
def store(tmp_path: Path) -> str:
    pytest.importorskip("milvus_lite", reason="needs the extra milvus")
    return f"milvus://{tmp_path}/vectors.db"


@pytest.mark.parametrize("kind", ["flat", "hnsw", "ivf-sq8"])
def test_milvus_finds_what_exact_search_finds(store: str, kind: str) -> None:
    generator = np.random.default_rng(0)
    vectors = (generator.standard_normal((500, 16)) * 8).round().astype(np.float32) / 8
    queries = vectors[:7] + np.float32(0.25)
    keys = fill_collection(store, kind, Array(vectors), "a test", first_key=100)
    index = MilvusIndex(store, keys, 16, kind, effort=200 if kind == "hnsw" else 12)
    index.require_complete(500)
    rows, scores = index.search(queries, 10)
    expected = brute_force(queries, vectors, 10)
    assert np.mean([len(np.intersect1d(*pair)) / 10 for pair in zip(rows, expected, strict=True)]) >= 0.75
    assert kind != "flat" or (np.sort(scores) == np.sort(np.take_along_axis(queries @ vectors.T, expected, 1))).all()
    exact = np.take_along_axis(queries @ vectors.T, rows, axis=1)
    assert scores == pytest.approx(exact, abs=1e-3 if kind != "ivf-sq8" else 0.5)
    assert index.take(np.array([3, 499, 0])) == pytest.approx(vectors[[3, 499, 0]])
    for share in (0.5, 0.02):
        allowed = generator.random(500) < share
        rows, scores = index.search(queries, 20, allowed)
        assert allowed[rows[rows >= 0]].all()
        assert (rows >= 0).sum() >= 7 * min(20, allowed.sum()) * 0.9
        assert (rows == brute_force(queries, vectors, 20, allowed)[:, : rows.shape[1]]).all()  # few: compared here
    with pytest.raises(LimbeckError, match="numbers"):
        index.search(np.zeros((1, 5)), 3)
    with pytest.raises(LimbeckError, match="holds a collection that is not of this index"):
        fill_collection(store, kind, Array(vectors), "another owner")
    with pytest.raises(LimbeckError, match="holds vectors of 16 numbers, the index has 8"):
        MilvusIndex(store, keys, 8, kind).require_complete(500)
    with pytest.raises(LimbeckError, match="holds 500 vectors where the index has 501"):
        MilvusIndex(store, np.arange(501), 16, kind).require_complete(501)


@pytest.mark.full
def test_an_index_in_milvus_answers_as_one_in_faiss_through_all_changes(
    store: str, model: DualEncoder, tmp_path: Path
) -> None:
    first, second = make_corpus(60, 5, longest=20), make_corpus(20, 6)
    places = {"faiss": tmp_path / "faiss", "milvus": tmp_path / "milvus"}
    cut = {"window": 6, "stride": 3}
    build_index(model, passages_of(first), places["faiss"], **cut)
    build_index(model, passages_of(first), places["milvus"], store=store, kind="flat", **cut)
    assert not list(places["milvus"].glob("segments/*/dense.faiss"))
    changes = [
        lambda place: None,
        lambda place: add_passages(place, passages_of(second)),
        lambda place: delete_passages(place, [*list(first)[:20], *list(second)[:3]]),
        compact_index,
        lambda place: add_passages(place, passages_of({"late": "copy the file"})),
    ]
    for change in changes:
        for place in places.values():
            change(place)
        one, two = (SearchIndex.open(place) for place in places.values())
        assert_same(one, two)
    two.verify()
    assert two.manifest.dense.store == store
