from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import numpy as np
import pytest

from limbeck.errors import LimbeckError
from limbeck.files import read_json, write_json
from limbeck.stores import EncodingStore
from limbeck.stores.lock import WriterLock
from limbeck.stores.shards import merge_due, next_group


@pytest.fixture
def store(tmp_path: Path) -> EncodingStore:
    """Two shards with one text each."""
    store = EncodingStore.open(tmp_path / "store", {"weights": "abc"}, dim=2)
    store.append(["a"], np.array([[1, 2]]))
    store.append(["b"], np.array([[3, 4]]))
    return store


def reopen(store: EncodingStore) -> EncodingStore:
    return EncodingStore.open(store.path, {"weights": "abc"}, dim=2)


def test_thirty_two_equal_shards_are_merged_and_one_less_are_not() -> None:
    assert merge_due([10] * 31, large=1000) == 0
    assert merge_due([10] * 32, large=1000) == 32
    assert merge_due([], large=1000) == 0


def test_a_big_shard_is_not_rewritten_for_a_few_small_ones() -> None:
    assert merge_due([500] + [10] * 31, large=1000) == 0
    assert merge_due([500] + [10] * 32, large=1000) == 32
    assert merge_due([10] * 30 + [1] * 16, large=1000) == 32


def test_small_shards_that_make_up_a_large_one_are_merged_and_large_ones_are_not() -> None:
    assert merge_due([5000, 600, 400, 300], large=1000) == 3
    assert merge_due([5000, 600, 300], large=1000) == 0
    assert merge_due([5000, 990, 10], large=1000) == 0
    assert merge_due([5000, 1000], large=1000) == 0


@pytest.mark.parametrize("size", [1, 10])
def test_a_row_is_rewritten_a_logarithmic_number_of_times_and_shards_stay_few(size: int) -> None:
    sizes: list[int] = []
    written = most = 0
    for _ in range(20_000):
        sizes.append(size)
        while count := merge_due(sizes, large=5000 * size):
            written += sum(sizes[-count:])
            sizes[-count:] = [sum(sizes[-count:])]
        most = max(most, len(sizes))
    assert written / (20_000 * size) < 3.2
    assert most < 100


def test_compaction_joins_neighbours_until_only_the_last_may_be_small() -> None:
    sizes = [400, 400, 400, 2000, 10, 999, 10, 10, 10]
    while group := next_group(sizes, large=1000):
        first, last = group
        sizes[first:last] = [sum(sizes[first:last])]
    assert sizes == [1200, 2000, 1009, 30]
    assert next_group([], large=1000) is None


def test_another_identity_is_refused_and_every_difference_is_named(store: EncodingStore) -> None:
    with pytest.raises(LimbeckError, match=r"store: .*prompt is null there and \"q: \" here.*weights is \"abc\" there"):
        EncodingStore.open(store.path, {"weights": "other", "prompt": "q: "}, dim=2)
    with pytest.raises(LimbeckError, match="dim is 2 there and 3 here"):
        EncodingStore.open(store.path, {"weights": "abc"}, dim=3)


def test_a_difference_deep_inside_long_descriptions_is_shown(tmp_path: Path) -> None:
    def key(lengths: list[int], name: str) -> dict:
        return {"configuration": {"a": "x" * 99, "lengths": lengths, "name": name}}

    first = EncodingStore.open(tmp_path, key([8] * 40 + [9], "y" * 99 + "1"), dim=2)
    first.append(["a"], np.zeros((1, 2)))
    with pytest.raises(LimbeckError) as refused:
        EncodingStore.open(tmp_path, key([8] * 40 + [7], "y" * 99 + "2"), dim=2)
    eights = "8," * 10
    assert f"configuration.lengths is ...{eights}9] there and ...{eights}7] here" in str(refused.value)
    assert 'y1" there' in str(refused.value) and 'y2" here' in str(refused.value)
    assert "configuration.a" not in str(refused.value)


def test_a_changed_byte_is_noticed_at_the_first_touch_and_by_verify(store: EncodingStore) -> None:
    victim = sorted((store.path / "shards").glob("*/vectors.npy"))[1]
    content = bytearray(victim.read_bytes())
    content[-1] ^= 1
    victim.write_bytes(content)
    with pytest.raises(LimbeckError, match=rf"{victim}: is damaged: its checksum.*; remove {store.path} and"):
        store.verify()
    fresh = reopen(store)
    assert fresh.get(["a"]).tolist() == [[1, 2]]
    with pytest.raises(LimbeckError, match=f"{victim}: is damaged"):
        fresh.get(["b"])
    with pytest.raises(LimbeckError, match=f"{victim}: is damaged"):
        fresh.compact()


def test_a_large_file_is_checked_by_verify_and_before_it_is_merged(
    store: EncodingStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("limbeck.stores.mapped.CHECK_BELOW", 1)
    victim = sorted((store.path / "shards").glob("*/vectors.npy"))[1]
    content = bytearray(victim.read_bytes())
    content[-1] ^= 1
    victim.write_bytes(content)
    fresh = reopen(store)
    fresh.get(["b"])
    with pytest.raises(LimbeckError, match="is damaged"):
        fresh.compact()
    with pytest.raises(LimbeckError, match="is damaged"):
        fresh.verify()


@pytest.mark.parametrize("name", ["vectors.npy", "index.npy"])
def test_a_truncated_file_is_noticed_on_opening(store: EncodingStore, name: str) -> None:
    victim = sorted((store.path / "shards").glob(f"*/{name}"))[0]
    os.truncate(victim, victim.stat().st_size - 1)
    with pytest.raises(LimbeckError, match=rf"{victim}: is damaged: has \d+ bytes but the manifest says \d+"):
        reopen(store)
    with pytest.raises(LimbeckError, match="is damaged"):
        store.verify()


def test_a_missing_file_is_named(store: EncodingStore) -> None:
    victim = sorted((store.path / "shards").glob("*/index.npy"))[0]
    victim.unlink()
    with pytest.raises(LimbeckError, match=f"{victim}: is missing"):
        reopen(store)


def test_a_damaged_manifest_is_named(store: EncodingStore) -> None:
    manifest = store.path / "manifest.json"
    whole = manifest.read_text()
    manifest.write_text(whole.replace('"rows": 1', '"rows": 2', 1))
    with pytest.raises(LimbeckError, match=f"{manifest}: is damaged: its checksum"):
        reopen(store)
    manifest.write_text(whole[: len(whole) // 2])
    with pytest.raises(LimbeckError, match=f"{manifest}:.*is not valid JSON"):
        reopen(store)
    write_json(manifest, [1])
    with pytest.raises(LimbeckError, match="describes 'list', not limbeck encodings"):
        reopen(store)


def test_a_manifest_of_another_version_or_kind_is_refused(store: EncodingStore) -> None:
    manifest = store.path / "manifest.json"
    record = read_json(manifest)
    write_json(manifest, record | {"version": 99})
    with pytest.raises(LimbeckError, match="has version 99, but this limbeck reads version 1"):
        reopen(store)
    write_json(manifest, record | {"kind": "limbeck teacher scores"})
    with pytest.raises(LimbeckError, match="describes 'limbeck teacher scores', not limbeck encodings"):
        reopen(store)


def test_a_directory_with_other_files_is_not_written_to(tmp_path: Path) -> None:
    (tmp_path / "shards" / "thesis").mkdir(parents=True)
    store = EncodingStore.open(tmp_path, {}, dim=2)
    with pytest.raises(LimbeckError, match="contains 'shards' and is not a store; name another directory"):
        store.append(["a"], np.zeros((1, 2)))
    assert (tmp_path / "shards" / "thesis").is_dir()
    assert not (tmp_path / "manifest.json").exists()


def test_a_store_without_its_manifest_says_to_remove_it(store: EncodingStore) -> None:
    (store.path / "manifest.json").unlink()
    with pytest.raises(LimbeckError, match=f"without its manifest.json; remove {store.path} and run the same"):
        reopen(store).append(["c"], np.zeros((1, 2)))
    assert len(list((store.path / "shards").iterdir())) == 2


def test_what_the_manifest_does_not_name_is_removed_by_the_next_writer(store: EncodingStore) -> None:
    orphans = [store.path / "shards" / name for name in ("000009-0123abcd", ".000009-0123abcd.01234567.partial")]
    for orphan in orphans:
        orphan.mkdir()
    (store.path / ".manifest.json.01234567.partial").write_text("half")
    reopen(store).get(["a"])
    assert orphans[0].exists()
    reopen(store).append(["c"], np.zeros((1, 2)))
    assert sorted(path.name for path in store.path.iterdir()) == ["manifest.json", "shards", "writer.lock"]
    assert len(list((store.path / "shards").iterdir())) == 3


def test_a_second_writer_gets_an_error_that_names_the_first_and_can_read(store: EncodingStore) -> None:
    program = """
        import sys, numpy as np
        from limbeck.errors import LimbeckError
        from limbeck.stores import EncodingStore
        store = EncodingStore.open(sys.argv[1], {"weights": "abc"}, dim=2)
        print(store.get(["a"]).tolist())
        try:
            store.append(["c"], np.zeros((1, 2)))
        except LimbeckError as error:
            print(error)
    """
    command = [sys.executable, "-c", textwrap.dedent(program), str(store.path)]
    with store.writing():
        store.append(["b2"], np.zeros((1, 2)))
        told = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    assert told[0] == "[[1.0, 2.0]]"
    assert told[1].startswith(f"{store.path}: is being written by process {os.getpid()}; wait until it has finished")
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines() == told[:1]


def test_threads_of_one_process_take_turns(tmp_path: Path) -> None:
    lock = WriterLock(tmp_path / "lock")
    inside = threading.Event()
    order: list[str] = []

    def second() -> None:
        inside.wait()
        with lock.held():
            order.append("second")

    thread = threading.Thread(target=second)
    thread.start()
    with lock.held() as outer:
        inside.set()
        with lock.held() as inner:
            thread.join(timeout=0.1)
            order.append("first")
        assert (outer, inner) == (True, False)
    thread.join()
    assert order == ["first", "second"]


def test_a_fork_of_a_writer_does_not_write_nor_release_the_lock(tmp_path: Path) -> None:
    lock = WriterLock(tmp_path / "lock")
    with lock.held():
        child = os.fork()
        if child == 0:
            try:
                with lock.held():
                    os._exit(1)
            except LimbeckError:
                os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        with pytest.raises(LimbeckError, match="is being written"), WriterLock(tmp_path / "lock").held():
            pass


def test_a_fork_that_leaves_the_block_does_not_release_the_lock(tmp_path: Path) -> None:
    child = 0
    with WriterLock(tmp_path / "lock").held():
        child = os.fork()
        if child:
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
            with pytest.raises(LimbeckError, match="is being written"), WriterLock(tmp_path / "lock").held():
                pass
    if child == 0:
        os._exit(0)


def test_a_store_opened_for_reading_is_not_written(store: EncodingStore) -> None:
    reader = EncodingStore.read(store.path)
    assert reader.key == {"weights": "abc"}
    assert reader.get(["b"]).tolist() == [[3, 4]]
    with pytest.raises(LimbeckError, match="for reading only"):
        reader.append(["c"], np.zeros((1, 2)))
    with pytest.raises(LimbeckError, match="contains no limbeck encodings; name another directory"):
        EncodingStore.read(store.path / "elsewhere")


def test_no_space_left_is_a_user_error_and_the_store_does_not_change(
    store: EncodingStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        with pytest.raises(LimbeckError, match="no space left on the device"):
            store.append(["c"], np.zeros((1, 2)))
    assert len(list((store.path / "shards").iterdir())) == 2
    store.append(["c"], np.ones((1, 2)))
    assert reopen(store).get(["a", "c"]).tolist() == [[1, 2], [1, 1]]
