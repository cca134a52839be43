import os
import pickle
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from limbeck.data import cache
from limbeck.data.beir import load_beir
from limbeck.data.dataset import Texts
from limbeck.errors import LimbeckError
from tests.data.folders import DOCUMENTS, beir_folder, jsonl


@pytest.fixture
def tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LIMBECK_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "tables"


def names(tables: Path) -> list[str]:
    return sorted(file.name for file in tables.iterdir())


def test_a_second_load_maps_the_first_ones_table(tmp_path: Path, tables: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = beir_folder(tmp_path / "a")
    first = dict(load_beir(folder).corpus.items())
    kept = names(tables)
    assert len(kept) == 6  # corpus and queries, each a table, an index and checksums

    def parse(*_: object) -> None:
        raise AssertionError("parsed again")

    monkeypatch.setattr("limbeck.data.tables.blocks", parse)
    assert dict(load_beir(folder).corpus.items()) == first
    assert names(tables) == kept


def test_a_changed_file_is_read_again_and_its_old_table_dropped(tmp_path: Path, tables: Path) -> None:
    folder = beir_folder(tmp_path / "a")
    old = load_beir(folder).corpus
    kept = names(tables)
    file = folder / "corpus.jsonl"
    content = file.read_text().replace("purr", "meow")  # of the same size
    file.write_text(content)
    os.utime(file, ns=(1, 1))
    assert load_beir(folder).corpus["d1"] == "Cats meow at night"
    assert len(names(tables)) == 6
    assert names(tables) != kept
    assert old["d1"] == "Cats purr at night"


@pytest.mark.parametrize("damage", [b"", b"ARROW1 and no more", None])
@pytest.mark.parametrize("suffix", [".arrow", ".ids.npy", ".sums.json"])
def test_a_damaged_or_missing_table_is_made_again(
    tmp_path: Path, tables: Path, damage: bytes | None, suffix: str
) -> None:
    folder = beir_folder(tmp_path / "a")
    expected = dict(load_beir(folder).corpus.items())
    for file in tables.glob(f"*{suffix}"):
        file.unlink()
        if damage is not None:
            file.write_bytes(damage)
    assert dict(load_beir(folder).corpus.items()) == expected


def test_a_file_that_takes_anothers_place_with_its_size_and_time_is_read_again(tmp_path: Path, tables: Path) -> None:
    folder = beir_folder(tmp_path / "a")
    load_beir(folder)
    file = folder / "corpus.jsonl"
    times = file.stat().st_atime_ns, file.stat().st_mtime_ns
    other = tmp_path / "other.jsonl"
    other.write_text(file.read_text().replace("purr", "meow"))
    os.utime(other, ns=times)
    os.replace(other, file)
    assert load_beir(folder).corpus["d1"] == "Cats meow at night"


def flip_each_byte(file: Path):
    content = file.read_bytes()
    for place in range(0, len(content), 7):
        damaged = bytearray(content)
        damaged[place] ^= 1 << place % 8
        file.write_bytes(damaged)
        yield
    file.write_bytes(content)


@pytest.mark.parametrize("suffix", [".arrow", ".ids.npy", ".sums.json"])
def test_a_flipped_byte_never_gives_other_texts(tmp_path: Path, tables: Path, suffix: str) -> None:
    folder = beir_folder(tmp_path / "a")
    expected = dict(load_beir(folder).corpus.items())
    for file in tables.glob(f"*{suffix}"):
        for _ in flip_each_byte(file):
            assert dict(load_beir(folder).corpus.items()) == expected


def test_a_large_table_is_checked_where_it_is_read(
    tmp_path: Path, tables: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Opening a large table reads none of its texts; a damaged batch is named when it is asked for, and made again."""
    monkeypatch.setattr(cache, "_SMALL", 0)

    def opened() -> Texts:
        batches = [batch for key in "ab" for batch in Texts.from_dict({key: f"text {key}"}).batches()]
        return cache.cached_texts("source", "state", lambda: batches, lambda key: LimbeckError(key))

    opened()
    for suffix, marked in ((".arrow", b"text b"), (".ids.npy", b"NUMPY")):
        (file,) = tables.glob(f"*{suffix}")
        content = file.read_bytes()
        file.write_bytes(content.replace(marked, marked.swapcase()))
        texts = opened()
        if suffix == ".arrow":
            assert texts.text_at(0) == "text a"
        with pytest.raises(LimbeckError, match=f"{suffix}: was damaged .* and is removed; run the same command again"):
            texts["b"]
        assert opened()["b"] == "text b"
    array = lambda: cache.cached_array("numbers", "state", lambda: iter([np.arange(9)]))  # noqa: E731
    array()
    (file,) = (file for file in tables.glob("*.npy") if not file.name.endswith(".ids.npy"))
    for _ in flip_each_byte(file):
        assert array().tolist() == list(range(9))


def test_bad_input_leaves_nothing_in_the_cache(tmp_path: Path, tables: Path) -> None:
    for bad in ('{"_id": "d1"', '{"_id": "d1", "text": "again"}'):
        with pytest.raises(LimbeckError):
            load_beir(beir_folder(tmp_path / "a", jsonl(DOCUMENTS) + bad + "\n"))
        assert names(tables) == []


def test_without_a_writable_cache_the_corpus_loads_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("LIMBECK_CACHE", str(tmp_path / "file" / "cache"))
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(scratch))
    corpus = load_beir(beir_folder(tmp_path / "a")).corpus
    assert corpus["d2"] == "dogs bark"
    assert list(scratch.iterdir()) == []
    assert dict(pickle.loads(pickle.dumps(corpus)).items()) == dict(corpus.items())


def test_a_mapped_table_is_pickled_by_reference(tmp_path: Path, tables: Path) -> None:
    corpus = load_beir(beir_folder(tmp_path / "a", jsonl([*DOCUMENTS, {"_id": "big", "text": "x" * 100000}]))).corpus
    pickled = pickle.dumps(corpus)
    assert len(pickled) < 1000
    assert dict(pickle.loads(pickled).items()) == dict(corpus.items())


def test_processes_that_load_at_once_all_succeed(tmp_path: Path, tables: Path) -> None:
    records = [{"_id": str(number), "text": f"text {number}"} for number in range(20_000)]
    folder = beir_folder(tmp_path / "a", jsonl(records), qrels="q1\t7\t1\n")
    code = "import sys; from limbeck.data import load; print(load(sys.argv[1]).corpus['19999'])"
    running = [
        subprocess.Popen([sys.executable, "-c", code, str(folder)], stdout=subprocess.PIPE, text=True) for _ in range(3)
    ]
    assert [process.communicate()[0].strip() for process in running] == ["text 19999"] * 3
    assert len(names(tables)) == 6


def test_what_a_killed_process_left_is_removed_after_a_day(tmp_path: Path, tables: Path) -> None:
    folder = beir_folder(tmp_path / "a")
    load_beir(folder)
    arrow = next(tables.glob("*.arrow"))
    old, fresh = tables / f".{arrow.name}.1.partial", tables / f".{arrow.name}.2.partial"
    for remains in (old, fresh):
        remains.write_bytes(b"half")
    os.utime(old, (time.time() - 100_000,) * 2)
    for file in tables.glob("*.arrow"):
        file.unlink()
    load_beir(folder)
    assert not old.exists()
    assert fresh.exists()


def test_an_array_made_in_pieces_is_mapped_as_a_whole(tables: Path) -> None:
    pieces = [np.arange(6, dtype=np.int32).reshape(2, 3), np.arange(6, 300, dtype=np.int32).reshape(-1, 3)]
    for _ in range(2):
        array = cache.cached_array("source", "state", lambda: iter(pieces))
        assert array.dtype == np.int32
        assert np.array_equal(array, np.arange(300).reshape(100, 3))
    assert len(cache.cached_array("empty", "state", lambda: iter([]))) == 0


def test_the_id_of_a_duplicate_reaches_the_callers_error(tables: Path) -> None:
    batches = Texts.from_dict({"a": "1"}).batches() * 2
    with pytest.raises(LimbeckError, match="twice: a"):
        cache.cached_texts("source", "state", lambda: batches, lambda key: LimbeckError(f"twice: {key}"))
    assert names(tables) == []
