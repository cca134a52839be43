from __future__ import annotations

import socket
import threading
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from limbeck.errors import LimbeckError
from limbeck.matchers import DualEncoder
from limbeck.progress import reporting
from limbeck.search import milvus_address
from limbeck.search.build import build_index
from limbeck.search.changes import add_passages, compact_index, delete_passages
from limbeck.search.checks import record_of
from limbeck.search.index import SearchIndex
from limbeck.search.manifest import IndexManifest
from limbeck.search.milvus import MilvusIndex, connect, fill_collection, remove_keys
from limbeck.search.milvus_address import Address, require_trusted, trust
from tests.cli.conftest import beir, limbeck  # noqa: F401  (fixtures)
from tests.search.conftest import make_corpus, passages_of
from tests.search.test_changes import Heard, assert_same
from tests.search.test_dense import Array, brute_force


def test_addresses() -> None:
    assert Address.parse("milvus://localhost:19530/things") == Address("http://localhost:19530", "things")
    assert Address.parse("milvus+https://a.example/things") == Address("https://a.example", "things")
    assert Address.parse("milvus:///tmp/a.db") == Address("/tmp/a.db", "limbeck")
    for wrong in (
        "milvus://localhost:19530",
        "milvus:///tmp/a",
        "milvus://host/1bad",
        "milvus://",
        "milvus://me:secret@host/a",
    ):
        with pytest.raises(LimbeckError, match="milvus"):
            Address.parse(wrong)


@pytest.fixture(autouse=True)
def _nobody_is_trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(milvus_address, "_trusted", set())
    monkeypatch.delenv("LIMBECK_MILVUS", raising=False)


@pytest.mark.parametrize("named", ["milvus://host:1", "milvus://host:1/other", "host:1", " host:1/ "])
def test_a_server_is_trusted_once_it_is_named(named: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(LimbeckError, match="my-index: .* at milvus://host:1, which you have not named; .*LIMBECK_MILV"):
        require_trusted("milvus://host:1/things", "my-index")
    with monkeypatch.context() as named_there:
        named_there.setenv("LIMBECK_MILVUS", f"elsewhere:2,{named}")
        require_trusted("milvus://host:1/things", "my-index")
    trust(named)
    require_trusted("milvus://host:1/things", "my-index")
    for other in ("milvus+https://host:1/things", "milvus://host:2/things", "milvus:///host.db"):
        with pytest.raises(LimbeckError, match="which you have not named"):
            require_trusted(other, "my-index")


class _Listener(threading.Thread):
    """A server that keeps the first bytes that somebody sends."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.socket.settimeout(3)
        self.calls = 0
        self.start()

    def run(self) -> None:
        with suppress(OSError):
            self.socket.accept()
            self.calls += 1


def foreign_index(model: DualEncoder, corpus: dict[str, str], folder: Path, store: str) -> Path:
    """An index whose manifest names an address that the user has never heard of."""
    index = build_index(model, passages_of(corpus), folder)
    segment = folder / "segments" / index.manifest.segments[0].name
    (segment / "dense.faiss").unlink()
    np.save(segment / "keys.npy", np.arange(len(corpus)))
    dense = replace(index.manifest.dense, store=store, owner="them")
    files = {f"segments/{segment.name}/{file.name}": record_of(file) for file in segment.iterdir()}
    kept = {name: record for name, record in index.manifest.files.items() if not name.startswith("segments")}
    replace(index.manifest, dense=dense, files=kept | files).save(folder)
    return folder


def test_an_index_from_elsewhere_gets_no_connection_and_no_token(
    model: DualEncoder, corpus: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("pymilvus", reason="needs the extra milvus")
    monkeypatch.setenv("MILVUS_TOKEN", "secret")
    listener = _Listener()
    port = listener.socket.getsockname()[1]
    path = foreign_index(model, corpus, tmp_path / "index", f"milvus://127.0.0.1:{port}/things")
    before = IndexManifest.load(path)
    for act in (
        lambda: SearchIndex.open(path).search("copy"),
        lambda: SearchIndex.open(path).verify(),
        lambda: delete_passages(path, list(corpus)[:1]),
        lambda: add_passages(path, passages_of({"new": "copy"})),
    ):
        with pytest.raises(LimbeckError, match="which you have not named"):
            act()
    listener.socket.close()
    assert listener.calls == 0 and IndexManifest.load(path) == before
    assert SearchIndex.open(path).search("copy", mode="sparse").hits


def test_reading_creates_no_milvus_file(model: DualEncoder, corpus: dict[str, str], tmp_path: Path) -> None:
    pytest.importorskip("milvus_lite", reason="needs the extra milvus")
    store = f"milvus://{tmp_path}/deep/er/vectors.db"
    path = foreign_index(model, corpus, tmp_path / "index", store)
    trust(store)
    with pytest.raises(LimbeckError, match="vectors.db: no such file; put it there, or build the index again"):
        SearchIndex.open(path).search("copy")
    assert not (tmp_path / "deep").exists()


def test_the_token_goes_to_servers_only_and_a_plain_network_is_pointed_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pymilvus = pytest.importorskip("pymilvus", reason="needs the extra milvus")
    calls: list[tuple[str, str]] = []
    monkeypatch.setattr(pymilvus, "MilvusClient", lambda uri, token, timeout: calls.append((uri, token)))
    monkeypatch.setenv("MILVUS_TOKEN", "secret")
    heard = Heard()
    with reporting(heard):
        for store in ("milvus+https://a.example/b", "milvus://localhost:1/b", "milvus://a.example/b"):
            connect(store)
        connect(f"milvus://{tmp_path}/a.db", create=True)
    assert calls == [
        ("https://a.example", "secret"),
        ("http://localhost:1", "secret"),
        ("http://a.example", "secret"),
        (f"{tmp_path}/a.db", ""),
    ]
    (line,) = heard.lines
    assert line.startswith("milvus://a.example/b: the token crosses the network unencrypted; write milvus+https://")


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
    with pytest.raises(LimbeckError, match="has a collection that belongs to another index"):
        fill_collection(store, kind, Array(vectors), "another owner")
    with pytest.raises(LimbeckError, match="has a collection that belongs to another index"):
        remove_keys(store, keys[:1], "another owner")
    with pytest.raises(LimbeckError, match="has vectors of 16 numbers, but the index has 8"):
        MilvusIndex(store, keys, 8, kind).require_complete(500)
    with pytest.raises(LimbeckError, match="has 500 vectors, but the index has 501"):
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


def test_evaluate_takes_the_place_of_the_vectors_too(monkeypatch: pytest.MonkeyPatch, beir: Path, limbeck) -> None:  # noqa: F811
    """The line that refuses an address names `--milvus`, whichever command it comes from."""
    assert limbeck("evaluate", "bm25", beir, "--milvus", "host:1").code == 0
    require_trusted("milvus://host:1/things", "my-index")
