from __future__ import annotations

import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from limbeck.errors import LimbeckError
from limbeck.progress import Advance, reporting
from limbeck.stores import EncodingStore, Ragged, encode_with_store, store_path

KEY = {"weights": "abc", "lengths": (32, 64)}
TEXTS = [f"text {number}" for number in range(60)]


def vectors(texts: list[str], dim: int = 6) -> np.ndarray:
    """Unlike ones for unlike texts: [texts, dim]."""
    seeds = [int(text.split()[-1]) for text in texts]
    return np.stack([np.random.default_rng(seed).normal(size=dim).astype(np.float32) for seed in seeds])


def token_vectors(texts: list[str]) -> list[np.ndarray]:
    """As many as the number in the text modulo 5."""
    pairs = zip(texts, vectors(texts), strict=True)
    return [np.repeat(vector[None], int(text.split()[-1]) % 5, 0) for text, vector in pairs]


def filled(path: Path, dtype: Any = "float32", tokens: Any = None, block: int = 7) -> EncodingStore:
    """A store of all texts, in several shards of which some were merged."""
    store = EncodingStore.open(path, KEY, 6, dtype, tokens)
    for start in range(0, len(TEXTS), block):
        texts = TEXTS[start : start + block]
        if tokens == "ragged":
            store.append(texts, token_vectors(texts))
        elif tokens is None:
            store.append(texts, vectors(texts))
        else:
            store.append(texts, np.stack([vectors(texts) * (token + 1) for token in range(tokens)], axis=1))
    return store


BOUNDS = {"float32": 0.0, "float16": 2.0**-11, "int8": 0.51 / 127}


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8"])
@pytest.mark.parametrize("block", [3, 7, 60])
def test_one_vector_per_text_comes_back_in_the_order_asked_for(tmp_path: Path, dtype: str, block: int) -> None:
    filled(tmp_path, dtype, block=block)
    store = EncodingStore.read(tmp_path)
    asked = [TEXTS[at] for at in np.random.default_rng(0).integers(0, 60, 100)]
    got, wanted = store.get(asked), vectors(asked)
    assert got.dtype == np.float32
    assert (np.abs(got - wanted) <= BOUNDS[dtype] * np.abs(wanted).max(axis=1, keepdims=True)).all()
    store.verify()


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8"])
def test_a_fixed_number_of_vectors_per_text_comes_back(tmp_path: Path, dtype: str) -> None:
    filled(tmp_path, dtype, tokens=3)
    got = EncodingStore.read(tmp_path).get(TEXTS[::-1])
    assert got.shape == (60, 3, 6)
    wanted = np.stack([vectors(TEXTS[::-1]) * (token + 1) for token in range(3)], axis=1)
    assert (np.abs(got - wanted) <= BOUNDS[dtype] * np.abs(wanted).max(axis=-1, keepdims=True)).all()


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8"])
@pytest.mark.parametrize("block", [3, 7])
def test_ragged_vectors_come_back_in_the_order_asked_for(tmp_path: Path, dtype: str, block: int) -> None:
    filled(tmp_path, dtype, tokens="ragged", block=block)
    asked = [TEXTS[at] for at in np.random.default_rng(0).integers(0, 60, 100)]
    got = EncodingStore.read(tmp_path).get_ragged(asked)
    assert got.lengths.tolist() == [int(text.split()[-1]) % 5 for text in asked]
    for part, wanted in zip(got, token_vectors(asked), strict=True):
        largest = np.abs(wanted).max(axis=-1, keepdims=True, initial=0)
        assert (np.abs(part - wanted) <= BOUNDS[dtype] * largest).all()


def test_ragged_vectors_may_be_given_flat_with_lengths(tmp_path: Path) -> None:
    store = EncodingStore.open(tmp_path, KEY, 6, tokens="ragged")
    store.append(TEXTS, Ragged.from_list(token_vectors(TEXTS)))
    np.testing.assert_array_equal(store.get_ragged(TEXTS[8:10]).vectors, np.concatenate(token_vectors(TEXTS[8:10])))


def test_a_changed_text_is_missing_and_an_unchanged_one_is_not(tmp_path: Path) -> None:
    store = filled(tmp_path)
    assert store.missing(["text 3", "Text 3", "text 3 ", "Text 3", "text 59"]) == [1, 2]
    assert store.rows(["text 3", "Text 3"]).tolist() == [3, -1]


def test_what_is_stored_already_is_not_stored_again(tmp_path: Path) -> None:
    store = EncodingStore.open(tmp_path, KEY, 2)
    assert store.append(["a", "b", "a"], np.array([[1, 1], [2, 2], [3, 3]])) == 2
    assert store.append(["c", "b"], np.array([[4, 4], [5, 5]])) == 1
    assert store.append(["a"], np.array([[6, 6]])) == 0
    assert len(store) == 3
    assert store.get(["a", "b", "c"])[:, 0].tolist() == [1, 2, 4]
    assert store.append([], np.empty((0, 2))) == 0


def test_rows_keep_their_numbers_through_appends_and_compaction(tmp_path: Path) -> None:
    store = filled(tmp_path)
    assert len(store._shards.shards) > 1
    assert store.rows(TEXTS).tolist() == list(range(60))
    store.compact()
    assert len(store._shards.shards) == 1
    assert len(list((tmp_path / "shards").iterdir())) == 1
    assert store.rows(TEXTS).tolist() == list(range(60))
    np.testing.assert_array_equal(store.take(np.arange(60)), vectors(TEXTS))
    store.verify()


def test_rows_keep_their_numbers_where_shards_in_the_middle_are_joined(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = [mapped.shard.bytes for mapped in filled(tmp_path)._shards.shards]
    monkeypatch.setattr("limbeck.stores.encodings.LARGE", 2 * max(sizes))
    store = EncodingStore.open(tmp_path, KEY, 6)
    store.compact()
    assert 1 < len(store._shards.shards) < len(sizes)
    for opened in (store, EncodingStore.read(tmp_path)):
        assert opened.rows(TEXTS).tolist() == list(range(60))
        np.testing.assert_array_equal(opened.take(np.arange(60)), vectors(TEXTS))


@pytest.mark.parametrize("dtype", ["float16", "int8"])
def test_the_error_of_the_dtype_is_reported_and_survives_merging(tmp_path: Path, dtype: str) -> None:
    store = filled(tmp_path, dtype)
    wanted = vectors(TEXTS).astype(np.float64)
    lost = np.linalg.norm(store.get(TEXTS) - wanted) / np.linalg.norm(wanted)
    assert lost > 0
    assert store.error.relative == pytest.approx(lost, rel=1e-6)
    store.compact()
    assert EncodingStore.read(tmp_path).error.relative == pytest.approx(lost, rel=1e-6)
    assert filled(tmp_path / "exact").error.relative == 0


def test_int8_takes_a_quarter_of_the_bytes(tmp_path: Path) -> None:
    texts = [f"text {number}" for number in range(100)]
    sizes = {}
    for dtype in ("float32", "int8"):
        store = EncodingStore.open(tmp_path / dtype, KEY, 384, dtype)
        store.append(texts, vectors(texts, 384))
        sizes[dtype] = sum(file.stat().st_size for file in (tmp_path / dtype).glob("shards/*/vectors.npy")) - 128
    assert sizes == {"float32": 100 * 384 * 4, "int8": 100 * 384}


def test_a_text_without_vectors_is_named(tmp_path: Path) -> None:
    with pytest.raises(LimbeckError, match="has no vectors for 1 of 2 texts, the first is 'who\\?'; encode them first"):
        filled(tmp_path).get(["text 1", "who?"])
    with pytest.raises(IndexError, match="has 60 rows"):
        filled(tmp_path).take(np.array([60]))


@pytest.mark.parametrize(
    ("dtype", "value"), [("float32", np.nan), ("float16", np.inf), ("int8", np.nan), ("float16", 70000.0)]
)
def test_a_vector_that_is_not_finite_is_refused_and_names_its_text(tmp_path: Path, dtype: Any, value: float) -> None:
    store = EncodingStore.open(tmp_path / "s", KEY, 2, dtype, tokens="ragged")
    parts = [np.ones((3, 2)), np.ones((0, 2)), np.array([[1, 1], [1, value]]), np.ones((1, 2))]
    with pytest.raises(LimbeckError, match=f"the vector of 'third' is not finite as {dtype}"):
        store.append(["first", "second", "third", "fourth"], parts)
    assert not (tmp_path / "s").exists()


@pytest.mark.parametrize(
    ("tokens", "wrong"),
    [(None, np.zeros((2, 3))), (None, np.zeros((1, 6))), (2, np.zeros((2, 3, 6))), ("ragged", [np.zeros((1, 5))] * 2)],
)
def test_vectors_of_another_shape_are_refused(tmp_path: Path, tokens: Any, wrong: Any) -> None:
    store = EncodingStore.open(tmp_path / "s", KEY, 6, tokens=tokens)
    with pytest.raises(LimbeckError, match="the store needs"):
        store.append(["a", "b"], wrong)
    assert not (tmp_path / "s").exists()


def test_ragged_and_fixed_stores_are_not_confused(tmp_path: Path) -> None:
    with pytest.raises(LimbeckError, match="ragged methods"):
        filled(tmp_path / "r", tokens="ragged").get(TEXTS)
    with pytest.raises(LimbeckError, match="use `get`"):
        filled(tmp_path / "f").get_ragged(TEXTS)
    with pytest.raises(LimbeckError, match="choose one of float32, float16, int8"):
        EncodingStore.open(tmp_path / "x", KEY, 2, "bfloat16")  # type: ignore[arg-type]


def test_every_key_has_a_separate_directory_for_any_order_of_its_entries(tmp_path: Path) -> None:
    assert store_path(tmp_path, {"a": 1, "b": 2}) == store_path(tmp_path, {"b": 2, "a": 1})
    assert store_path(tmp_path, {"a": 1}) != store_path(tmp_path, {"a": "1"})
    assert store_path(tmp_path, {"a": 1}).parent == tmp_path


def test_opening_writes_nothing(tmp_path: Path) -> None:
    store = EncodingStore.open(tmp_path / "s", KEY, 2)
    assert store.missing(["a"]) == [0]
    assert len(store) == 0
    assert encode_with_store(store, [], lambda _: np.empty((0, 2))) == 0
    assert not (tmp_path / "s").exists()


def test_only_what_is_missing_is_encoded_once_and_in_blocks(tmp_path: Path) -> None:
    store = EncodingStore.open(tmp_path, KEY, 6)
    store.append(TEXTS[:5], vectors(TEXTS[:5]))
    blocks: list[list[str]] = []

    def encode(texts: list[str]) -> np.ndarray:
        blocks.append(texts)
        return vectors(texts)

    shown: list[tuple[str, int | None]] = []

    class Reporter:
        @contextmanager
        def task(self, label: str, total: int | None) -> Iterator[Advance]:
            shown.append((label, total))
            yield lambda count: shown.append(("advance", count))

        def say(self, message: str) -> None: ...

    with reporting(Reporter()):
        assert encode_with_store(store, TEXTS + TEXTS, encode, block=16) == 55
    assert [len(texts) for texts in blocks] == [16, 16, 16, 7]
    assert sorted(text for texts in blocks for text in texts) == sorted(TEXTS[5:])
    assert shown[0] == ("Encoding", 120)
    assert sum(count or 0 for _, count in shown[1:]) == 120
    np.testing.assert_array_equal(store.get(TEXTS), vectors(TEXTS))
    assert encode_with_store(store, iter(TEXTS), encode, block=16) == 0


def test_blocks_done_before_an_error_are_kept(tmp_path: Path) -> None:
    store = EncodingStore.open(tmp_path, KEY, 6)

    def encode(texts: list[str]) -> np.ndarray:
        if "text 40" in texts:
            raise RuntimeError("out of memory")
        return vectors(texts)

    with pytest.raises(RuntimeError, match="out of memory"):
        encode_with_store(store, TEXTS, encode, block=10)
    assert EncodingStore.read(tmp_path).missing(TEXTS) == list(range(40, 60))


def test_a_reader_keeps_what_it_has_while_a_writer_appends_and_compacts(tmp_path: Path) -> None:
    store = filled(tmp_path)
    reader = EncodingStore.open(tmp_path, KEY, 6)
    store.append(["text 100"], vectors(["text 100"]))
    store.compact()
    np.testing.assert_array_equal(reader.get(TEXTS), vectors(TEXTS))
    assert reader.missing(["text 100"]) == [0]
    reader.refresh()
    np.testing.assert_array_equal(reader.get(["text 100", *TEXTS]), vectors(["text 100", *TEXTS]))


def test_another_process_reads_all_the_while_one_appends(tmp_path: Path) -> None:
    program = """
        import sys, numpy as np
        from limbeck.stores import EncodingStore
        store = EncodingStore.open(sys.argv[1], {}, dim=2)
        with store.writing():
            for number in range(60):
                store.append([str(number)], np.full((1, 2), number))
                if number % 9 == 0:
                    store.compact()
    """
    writer = subprocess.Popen([sys.executable, "-c", textwrap.dedent(program), str(tmp_path / "s")])
    reader = EncodingStore.open(tmp_path / "s", {}, dim=2)
    seen = [0]
    while writer.poll() is None or len(reader) < 60:
        reader.refresh()
        known = [str(number) for number in range(len(reader))]
        assert reader.get(known)[:, 0].tolist() == list(range(len(reader)))
        assert len(reader) >= seen[-1]
        seen.append(len(reader))
    assert writer.wait() == 0
    assert len(set(seen)) > 5


def test_threads_may_read_while_one_appends(tmp_path: Path) -> None:
    store = EncodingStore.open(tmp_path, KEY, 6)
    failures: list[BaseException] = []
    done = threading.Event()

    def read() -> None:
        try:
            while not done.is_set():
                store.refresh()
                count = len(store)
                np.testing.assert_array_equal(store.get(TEXTS[:count]), vectors(TEXTS)[:count])
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=read)
    thread.start()
    for text in TEXTS:
        store.append([text], vectors([text]))
    done.set()
    thread.join()
    assert not failures
    assert len(EncodingStore.read(tmp_path)) == 60
