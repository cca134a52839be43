"""What is on disk is complete or absent."""

from __future__ import annotations

import errno
import json
import os
import signal
import stat
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from limbeck import files
from limbeck.errors import LimbeckError
from limbeck.files import (
    checksum,
    digest,
    directory_atomically,
    naming_disk_errors,
    put_back_directory,
    read_json,
    recover_directory,
    refuse_overwriting,
    require_empty_or_absent,
    write_atomically,
    write_json,
)


def write_directory(path: Path, content: str) -> None:
    with directory_atomically(path) as folder:
        (folder / "weights").write_text(content)


def write_and_raise(path: Path, error: type[BaseException]) -> None:
    with write_atomically(path, "w") as handle:
        handle.write("new")
        raise error


def write_directory_and_raise(path: Path, error: type[BaseException]) -> None:
    with directory_atomically(path) as folder:
        (folder / "weights").write_text("new")
        raise error


def names(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir())


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 64 kB."""
    place = tmp_path / "disk"
    place.mkdir()
    mounted = sys.platform == "linux" and os.geteuid() == 0
    if mounted:
        command = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(place)]
        mounted = subprocess.run(command, capture_output=True, check=False).returncode == 0
    if not mounted:
        pytest.skip("mounting a tiny file system needs root on Linux")
    yield place
    subprocess.run(["umount", str(place)], check=True)


def killed_in(code: str, folder: Path) -> None:
    """Run code that kills itself with SIGKILL, in a separate process."""
    prelude = """
        import os, shutil, signal, sys
        from pathlib import Path
        from limbeck.files import *
        folder = Path(sys.argv[1])
        def die(*_, **__): os.kill(os.getpid(), signal.SIGKILL)
    """
    program = textwrap.dedent(prelude) + textwrap.dedent(code)
    ended = subprocess.run([sys.executable, "-c", program, str(folder)], check=False)
    assert ended.returncode == -signal.SIGKILL


def test_a_written_file_is_there_with_what_the_block_wrote_and_nothing_beside(tmp_path: Path) -> None:
    with write_atomically(tmp_path / "deep" / "er" / "a.txt", "w") as handle:
        handle.write("ä")
        assert not (tmp_path / "deep" / "er" / "a.txt").exists()
    assert (tmp_path / "deep" / "er" / "a.txt").read_bytes() == "ä".encode()
    assert names(tmp_path / "deep" / "er") == ["a.txt"]


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_an_exception_in_the_block_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, error: type[BaseException]
) -> None:
    (tmp_path / "a.txt").write_text("old")
    with pytest.raises(error):
        write_and_raise(tmp_path / "a.txt", error)
    assert names(tmp_path) == ["a.txt"]
    assert (tmp_path / "a.txt").read_text() == "old"


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_an_exception_in_the_block_leaves_the_old_directory_and_nothing_else(
    tmp_path: Path, error: type[BaseException]
) -> None:
    write_directory(tmp_path / "model", "old")
    with pytest.raises(error):
        write_directory_and_raise(tmp_path / "model", error)
    assert names(tmp_path) == ["model"]
    assert (tmp_path / "model" / "weights").read_text() == "old"


def test_a_directory_is_replaced_as_a_whole(tmp_path: Path) -> None:
    with directory_atomically(tmp_path / "model") as folder:
        (folder / "sub").mkdir()
        (folder / "sub" / "only in the old one").write_text("x")
    write_directory(tmp_path / "model", "new")
    assert names(tmp_path) == ["model"]
    assert names(tmp_path / "model") == ["weights"]


def test_the_old_directory_comes_back_when_the_second_rename_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_directory(tmp_path / "model", "old")
    rename = os.replace

    def refuse_the_new_one(source: Path, target: Path) -> None:
        if Path(source).name.endswith(".partial") and Path(target).name == "model":
            raise OSError(errno.EIO, "input/output error")
        rename(source, target)

    monkeypatch.setattr(os, "replace", refuse_the_new_one)
    with pytest.raises(OSError, match="input/output error"):
        write_directory(tmp_path / "model", "new")
    assert names(tmp_path) == ["model"]
    assert (tmp_path / "model" / "weights").read_text() == "old"


def test_a_full_disk_is_a_user_error_that_leaves_nothing(tiny_disk: Path) -> None:
    (tiny_disk / "old.bin").write_bytes(b"old")
    with (
        pytest.raises(LimbeckError, match=r"old\.bin: no space left on the device; free some space"),
        write_atomically(tiny_disk / "old.bin") as handle,
    ):
        handle.write(bytes(10**6))
    assert names(tiny_disk) == ["old.bin"]
    with (
        pytest.raises(LimbeckError, match="model: no space left on the device"),
        directory_atomically(tiny_disk / "model") as folder,
    ):
        (folder / "weights").write_bytes(bytes(10**6))
    assert names(tiny_disk) == ["old.bin"]
    assert (tiny_disk / "old.bin").read_bytes() == b"old"


def test_safetensors_own_error_about_a_full_disk_is_recognised(tiny_disk: Path) -> None:
    numpy = pytest.importorskip("numpy")
    save_file = pytest.importorskip("safetensors.numpy").save_file
    with (
        pytest.raises(LimbeckError, match="no space left on the device"),
        directory_atomically(tiny_disk / "model") as folder,
    ):
        save_file({"w": numpy.zeros(10**6, dtype=numpy.float32)}, str(folder / "model.safetensors"))
    assert names(tiny_disk) == []


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_no_space_at_the_fsync_is_a_user_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    def fail(_: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(files, "make_directory", lambda _: None)
    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(LimbeckError, match="no space left"):
        write_json(tmp_path / "a.json", {})
    assert names(tmp_path) == []


def test_an_unreadable_input_inside_the_block_is_not_blamed_on_the_output(tmp_path: Path) -> None:
    with pytest.raises(PermissionError), write_atomically(tmp_path / "out" / "a.txt"):
        raise PermissionError(errno.EACCES, "Permission denied", str(tmp_path / "input.txt"))


@pytest.mark.parametrize("write", [lambda path: write_json(path, {}), lambda path: write_directory(path, "x")])
def test_a_place_that_cannot_be_written_is_a_user_error(tmp_path: Path, write: object) -> None:
    (tmp_path / "file").write_text("a file, not a directory")
    assert callable(write)
    with pytest.raises(LimbeckError, match=r"cannot write .*--out"):
        write(tmp_path / "file" / "below")
    with pytest.raises(LimbeckError, match=r"cannot write .*--out"):
        write(tmp_path / ("long" * 100))
    assert names(tmp_path) == ["file"]


def test_a_file_does_not_replace_a_directory_nor_a_directory_a_file(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("kept")
    with pytest.raises(LimbeckError, match="is a directory"):
        write_json(tmp_path / "folder", {})
    with pytest.raises(LimbeckError, match="is not a directory"):
        write_directory(tmp_path / "file", "x")
    assert (tmp_path / "file").read_text() == "kept"
    assert names(tmp_path) == ["file", "folder"]


def test_a_device_is_written_into_and_not_replaced() -> None:
    with write_atomically(os.devnull) as handle:
        handle.write(b"gone")
    assert stat.S_ISCHR(os.stat(os.devnull).st_mode)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full, which Linux has")
def test_a_device_that_is_full_is_a_user_error() -> None:
    with pytest.raises(LimbeckError, match="/dev/full: no space left"), write_atomically("/dev/full") as handle:
        handle.write(b"x")


def test_a_symbolic_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "far").mkdir()
    (tmp_path / "a.json").symlink_to(tmp_path / "far" / "a.json")
    (tmp_path / "model").symlink_to(tmp_path / "far" / "model")
    write_json(tmp_path / "a.json", 1)
    write_directory(tmp_path / "model", "first")
    write_directory(tmp_path / "model", "second")
    assert names(tmp_path / "far") == ["a.json", "model"]
    assert (tmp_path / "a.json").is_symlink()
    assert (tmp_path / "model").is_symlink()
    assert (tmp_path / "far" / "model" / "weights").read_text() == "second"


def test_after_a_kill_in_the_block_recovery_leaves_only_the_old_directory(tmp_path: Path) -> None:
    write_directory(tmp_path / "model", "old")
    killed_in(
        """
        with directory_atomically(folder / "model") as partial:
            (partial / "weights").write_text("new")
            die()
        """,
        tmp_path,
    )
    assert len(names(tmp_path)) == 2
    recover_directory(tmp_path / "model")
    assert names(tmp_path) == ["model"]
    assert (tmp_path / "model" / "weights").read_text() == "old"


BETWEEN_THE_RENAMES = """
    rename = os.replace
    os.replace = lambda a, b: die() if Path(a).name.endswith(".partial") else rename(a, b)
    with directory_atomically(folder / "model") as partial:
        (partial / "weights").write_text("new")
"""


def test_after_a_kill_between_the_renames_recovery_brings_the_old_directory_back(tmp_path: Path) -> None:
    write_directory(tmp_path / "model", "old")
    killed_in(BETWEEN_THE_RENAMES, tmp_path)
    assert not (tmp_path / "model").exists()
    recover_directory(tmp_path / "model")
    assert names(tmp_path) == ["model"]
    assert (tmp_path / "model" / "weights").read_text() == "old"


def test_after_a_kill_between_the_renames_a_failing_next_write_still_keeps_the_old_directory(tmp_path: Path) -> None:
    write_directory(tmp_path / "model", "old")
    killed_in(BETWEEN_THE_RENAMES, tmp_path)
    with pytest.raises(RuntimeError):
        write_directory_and_raise(tmp_path / "model", RuntimeError)
    assert names(tmp_path) == ["model"]
    assert (tmp_path / "model" / "weights").read_text() == "old"


def test_a_half_deleted_old_directory_is_never_brought_back(tmp_path: Path) -> None:
    write_directory(tmp_path / "model", "old")
    killed_in(
        """
        shutil.rmtree = die
        with directory_atomically(folder / "model") as partial:
            (partial / "weights").write_text("new")
        """,
        tmp_path,
    )
    assert (tmp_path / "model" / "weights").read_text() == "new"
    (tmp_path / "model" / "weights").unlink()
    (tmp_path / "model").rmdir()  # the user removes the model by hand
    recover_directory(tmp_path / "model")
    assert names(tmp_path) == []


def test_recovery_keeps_files_of_running_writers(tmp_path: Path) -> None:
    with (
        directory_atomically(tmp_path / "a") as folder,
        directory_atomically(tmp_path / "a.b") as neighbour,
        write_atomically(tmp_path / "c") as handle,
    ):
        recover_directory(tmp_path / "a")
        recover_directory(tmp_path / "c")
        for place in (folder, neighbour):
            (place / "x").write_text("x")
        handle.write(b"x")
    assert names(tmp_path) == ["a", "a.b", "c"]


def test_recovery_does_not_disturb_a_writer_between_its_two_renames(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_directory(tmp_path / "model", "old")
    rename = os.replace

    def read_in_between(source: Path, target: Path) -> None:
        rename(source, target)
        if Path(target).name == ".model.limbeck-replaced":
            put_back_directory(tmp_path / "model")
            recover_directory(tmp_path / "model")

    monkeypatch.setattr(os, "replace", read_in_between)
    write_directory(tmp_path / "model", "new")
    assert names(tmp_path) == ["model"]
    assert (tmp_path / "model" / "weights").read_text() == "new"


def test_a_reader_brings_the_old_directory_back_and_deletes_nothing(tmp_path: Path) -> None:
    write_directory(tmp_path / "model", "old")
    killed_in(BETWEEN_THE_RENAMES, tmp_path)
    left = {name for name in names(tmp_path) if name.endswith(".partial")}
    put_back_directory(tmp_path / "model")
    assert set(names(tmp_path)) == {"model"} | left
    assert (tmp_path / "model" / "weights").read_text() == "old"
    put_back_directory(tmp_path / "model")
    assert set(names(tmp_path)) == {"model"} | left


def test_no_read_or_write_touches_a_folder_of_the_users_that_ends_in_old(tmp_path: Path) -> None:
    (tmp_path / ".model.old").mkdir()
    (tmp_path / ".model.old" / "mine").write_text("x")
    put_back_directory(tmp_path / "model")
    write_directory(tmp_path / "model", "new")
    recover_directory(tmp_path / "model")
    assert names(tmp_path) == [".model.old", "model"] and names(tmp_path / ".model.old") == ["mine"]


def test_recovery_takes_the_name_literally(tmp_path: Path) -> None:
    remains = [tmp_path / ".run[1].0123abcd.partial", tmp_path / ".run1.0123abcd.partial"]
    for file in remains:
        file.write_text("x")
    recover_directory(tmp_path / "run[1]")
    assert names(tmp_path) == [".run1.0123abcd.partial"]


def test_recovery_of_what_never_was_does_nothing(tmp_path: Path) -> None:
    recover_directory(tmp_path / "nowhere" / "model")
    assert names(tmp_path) == []


def test_every_file_and_folder_is_fsynced_before_the_directory_appears(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[int] = []
    appeared: list[int] = []
    fsync, rename = os.fsync, os.replace

    def note_fsync(handle: int) -> None:
        synced.append(os.fstat(handle).st_ino)
        fsync(handle)

    def note_rename(source: Path, target: Path) -> None:
        appeared.extend(synced)
        rename(source, target)

    monkeypatch.setattr(os, "fsync", note_fsync)
    monkeypatch.setattr(os, "replace", note_rename)
    with directory_atomically(tmp_path / "model") as folder:
        (folder / "sub").mkdir()
        (folder / "sub" / "weights").write_text("x")
    wanted = [tmp_path / "model", tmp_path / "model" / "sub", tmp_path / "model" / "sub" / "weights"]
    assert {path.stat().st_ino for path in wanted} <= set(appeared)
    assert synced[-1] == tmp_path.stat().st_ino


def test_json_goes_round_and_its_faults_are_named_with_the_line(tmp_path: Path) -> None:
    write_json(tmp_path / "a.json", {"name": "Ärger", "list": [1, 2.5, None]})
    assert read_json(tmp_path / "a.json") == {"name": "Ärger", "list": [1, 2.5, None]}
    assert json.loads((tmp_path / "a.json").read_text(encoding="utf-8"))["name"] == "Ärger"
    (tmp_path / "a.json").write_text('{\n"a": 1,\n"b" 2}')
    with pytest.raises(LimbeckError, match=r"a\.json:3: is not valid JSON"):
        read_json(tmp_path / "a.json")
    (tmp_path / "a.json").write_bytes(b"\xff")
    with pytest.raises(LimbeckError, match=r"a\.json: cannot be read"):
        read_json(tmp_path / "a.json")
    with pytest.raises(LimbeckError, match="no such file; bring it"):
        read_json(tmp_path / "b.json", "bring it")


def test_a_value_that_json_does_not_know_leaves_no_file(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="JSON"):
        write_json(tmp_path / "a.json", {"score": float("nan")})
    assert names(tmp_path) == []


def test_the_digest_separates_its_parts() -> None:
    assert digest("ab", "c") != digest("a", "bc") != digest("abc")
    assert digest("ab", b"c") == digest(b"ab", "c")


def test_the_checksum_is_blake2b_of_the_content(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"abc")
    # b2sum -l 128 of "abc"
    assert checksum(tmp_path / "a") == "cf4ab791c62b8d2b2109c90275287816"


def test_a_directory_that_holds_something_is_refused(tmp_path: Path) -> None:
    require_empty_or_absent(tmp_path / "absent", "x")
    require_empty_or_absent(tmp_path, "x")
    (tmp_path / "a").write_text("x")
    with pytest.raises(LimbeckError, match="already exists and limbeck did not write it; name another"):
        require_empty_or_absent(tmp_path, "name another")


def test_a_directory_can_be_held_by_one_process_at_a_time(tmp_path):
    from limbeck.files import alone_in

    with (
        alone_in(tmp_path),
        pytest.raises(LimbeckError, match="another limbeck process is writing"),
        alone_in(tmp_path),
    ):
        pytest.fail("two at once")
    with alone_in(tmp_path):
        assert list(tmp_path.iterdir()) == []


def test_files_of_a_directory_can_be_read_by_whom_the_mask_allows(tmp_path):
    before = os.umask(0o022)
    try:
        with directory_atomically(tmp_path / "model") as folder:
            (folder / "weights").write_bytes(b"x")
            (folder / "weights").chmod(0o600)
    finally:
        os.umask(before)
    assert (tmp_path / "model" / "weights").stat().st_mode & 0o777 == 0o644


def test_results_replace_earlier_results_and_no_input(tmp_path):
    for name in ("corpus.jsonl", "run.trec", "index/index.json", "index/notes.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x")
    refuse_overwriting(tmp_path / "run.trec", tmp_path)
    refuse_overwriting(tmp_path / "new.jsonl", tmp_path)
    refuse_overwriting(None, tmp_path)
    for output, source in (("corpus.jsonl", "."), ("run.trec", "run.trec"), ("index/notes.txt", "index")):
        with pytest.raises(LimbeckError, match="which the command reads"):
            refuse_overwriting(tmp_path / output, tmp_path / source)


def test_a_full_disk_is_recognised_in_every_librarys_wording(tmp_path):
    for problem in (OSError("89851 requested and 73696 written"), RuntimeError("io: No space left on device (os 28)")):
        with pytest.raises(LimbeckError, match="no space left on the device"), naming_disk_errors(tmp_path):
            raise problem
    for size in (10, 1_000_000):  # torch says it in two ways
        with pytest.raises(LimbeckError, match="no space left on the device"), naming_disk_errors(tmp_path):
            torch.save({"weights": torch.zeros(size)}, "/dev/full")
    with pytest.raises(OSError, match="5 requested"), naming_disk_errors(tmp_path):
        raise OSError("5 requested and more to come")
