"""Lists of files with checksums: damage is named, other programs' folders are read as they are."""

from __future__ import annotations

import json

import pytest

from limbeck.errors import LimbeckError
from limbeck.file_list import NAME, read_list, require_as_listed, write_list
from limbeck.sealed import seal


def written(folder):
    (folder / "inner").mkdir()
    (folder / "inner" / "weights").write_bytes(b"abc")
    (folder / "notes.log").write_text("later")
    write_list(folder, {"command": "pairs"}, leave_out=("*.log",))
    return read_list(folder, "copy it again")


def test_a_folder_as_it_was_written_passes_and_added_files_do_not_count(tmp_path):
    found = written(tmp_path)
    assert list(found.files) == ["inner/weights"] and found.about == {"command": "pairs"}
    (tmp_path / "calibration.json").write_text("{}")
    require_as_listed(tmp_path, found.files, "differs", "copy it again")


def test_a_changed_and_a_missing_file_are_named(tmp_path):
    found = written(tmp_path)
    (tmp_path / "inner" / "weights").write_bytes(b"abd")
    with pytest.raises(LimbeckError, match="inner/weights: differs; copy it again"):
        require_as_listed(tmp_path, found.files, "differs", "copy it again")
    (tmp_path / "inner" / "weights").unlink()
    with pytest.raises(LimbeckError, match="inner/weights: no such file; copy it again"):
        require_as_listed(tmp_path, found.files, "differs", "copy it again")


def test_a_folder_without_a_list_has_none(tmp_path):
    assert read_list(tmp_path, "copy it again") is None


@pytest.mark.parametrize(
    "record",
    [
        [],
        {},
        {"format": 1, "files": []},
        {"format": 1, "files": {"a": 3}},
        {"format": 1, "files": {"a": {"bytes": 1}}},
        {"format": 1, "files": {"../a": {"bytes": 1, "blake2b": "x"}}},
        {"format": 1, "files": {"/a": {"bytes": 1, "blake2b": "x"}}},
        {"format": 1, "files": {"a": {"bytes": 1, "blake2b": "x"}}, "about": 3},
        {"format": 1, "files": {"a": {"bytes": 1, "blake2b": "x"}}, "checksum": "0"},
    ],
)
def test_something_that_is_not_a_list_is_refused_in_one_line(tmp_path, record):
    (tmp_path / NAME).write_text(json.dumps(record))
    with pytest.raises(LimbeckError, match=f"{NAME}: is damaged; copy it again"):
        read_list(tmp_path, "copy it again")


def test_a_list_of_another_version_is_refused_with_that_reason(tmp_path):
    (tmp_path / NAME).write_text(json.dumps(seal({"format": 9, "files": {}})))
    with pytest.raises(LimbeckError, match="another version"):
        read_list(tmp_path, "copy it again")
