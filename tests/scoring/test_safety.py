"""A job is known by its content, and what is damaged in it is scored again or named, never used."""

from __future__ import annotations

import json
import os
import shutil

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from limbeck.errors import LimbeckError
from limbeck.scoring import job as job_module
from limbeck.scoring.job import score_pairs
from limbeck.scoring.local import LocalEngine
from limbeck.scoring.parts import is_whole
from limbeck.scoring.worker import Worker
from tests.scoring.test_job import ONE, listed, model, result, sides_of, texts, write_ids  # noqa: F401


def flip(file, place):
    content = bytearray(file.read_bytes())
    content[place] ^= 4
    file.write_bytes(content)


def test_a_flipped_bit_in_a_part_or_its_checksum_has_it_scored_again(model, texts, listed, tmp_path):  # noqa: F811
    ask = (model, write_ids(tmp_path / "pairs.csv", listed), tmp_path / "out", ONE)
    score_pairs(*ask, **sides_of(tmp_path), shard=30)
    whole = result(tmp_path / "out")
    part, note = (tmp_path / "out" / name for name in ("scores/part-0000001.parquet", "_job/parts/part-0000001.json"))
    for file, place in ((part, 60), (part, part.stat().st_size // 2), (note, 20)):
        flip(file, place)
        assert score_pairs(*ask, **sides_of(tmp_path), shard=30).scored == 30
        assert result(tmp_path / "out") == whole
    note.unlink()  # as a kill between the part and its checksum leaves it
    assert score_pairs(*ask, **sides_of(tmp_path), shard=30).scored == 30
    assert score_pairs(*ask, **sides_of(tmp_path), shard=30).scored == 0


def test_another_list_of_the_same_size_and_time_is_another_job(model, texts, listed, tmp_path):  # noqa: F811
    file = write_ids(tmp_path / "pairs.parquet", listed)
    score_pairs(model, file, tmp_path / "out", ONE, **sides_of(tmp_path))
    times = file.stat().st_atime_ns, file.stat().st_mtime_ns
    flip(file, file.stat().st_size // 2)
    os.utime(file, ns=times)
    with pytest.raises(LimbeckError, match="contains another job .the list of pairs differs."):
        score_pairs(model, file, tmp_path / "out", ONE, **sides_of(tmp_path))


def test_a_copy_of_the_list_is_the_same_job(model, texts, listed, tmp_path):  # noqa: F811
    file = write_ids(tmp_path / "pairs.csv", listed)
    score_pairs(model, file, tmp_path / "out", ONE, **sides_of(tmp_path), shard=30)
    (tmp_path / "out" / "scores" / "part-0000001.parquet").unlink()
    shutil.copyfile(file, tmp_path / "copy.csv")
    os.replace(tmp_path / "copy.csv", file)
    assert score_pairs(model, file, tmp_path / "out", ONE, **sides_of(tmp_path)).scored == 30


class Meanwhile(LocalEngine):
    """Replaces the left texts by others of the same size and time once the shards are scored."""

    def __init__(self, file):
        super().__init__(1)
        self.file = file

    def run(self, folder, shards, advance):
        super().run(folder, shards, advance)
        times = self.file.stat().st_atime_ns, self.file.stat().st_mtime_ns
        self.file.write_bytes(self.file.read_bytes())
        os.utime(self.file, ns=times)


def test_shards_scored_while_the_texts_changed_do_not_count(model, texts, listed, tmp_path):  # noqa: F811
    file, out = write_ids(tmp_path / "pairs.csv", listed), tmp_path / "out"
    with pytest.raises(LimbeckError, match="changed while they were scored"):
        score_pairs(model, file, out, Meanwhile(tmp_path / "left.jsonl"), **sides_of(tmp_path))
    assert not (out / "_job" / "done.json").exists() and not is_whole(out, 0)


def test_a_job_of_an_earlier_limbeck_is_refused_in_one_line(model, texts, listed, tmp_path):  # noqa: F811
    file = write_ids(tmp_path / "pairs.csv", listed)
    (tmp_path / "out" / "scores").mkdir(parents=True)
    (tmp_path / "out" / "job.json").write_text(json.dumps({"format": 2}))
    with pytest.raises(
        LimbeckError, match="out: contains a job of an earlier version of limbeck; choose another --out, or finish"
    ):
        score_pairs(model, file, tmp_path / "out", ONE, **sides_of(tmp_path))


@pytest.mark.parametrize("wrong", [r'{"text_a": "a \ud800", "text_b": "b"}', r'{"left": "\udc00", "right": "r0"}'])
def test_half_a_surrogate_pair_is_named_and_nothing_stays(model, texts, tmp_path, wrong):  # noqa: F811
    file = tmp_path / "pairs.jsonl"
    file.write_text(wrong + "\n")
    sides = sides_of(tmp_path) if "left" in wrong else {}
    with pytest.raises(LimbeckError, match=r"pairs.jsonl:1: text 1 contains half of a surrogate pair"):
        score_pairs(model, file, tmp_path / "out", ONE, **sides)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("columns", [("left", "right"), ("text_a", "text_b"), ("text_a", "text_b", "label")])
def test_invalid_utf8_in_a_parquet_list_is_named(model, texts, tmp_path, columns):  # noqa: F811
    odd = pa.array([b"l\xff0"]).view(pa.string())
    good = pa.array(["r0"])
    table = {columns[0]: good if "label" in columns else odd, columns[1]: good, **dict.fromkeys(columns[2:], odd)}
    pq.write_table(pa.table(table), tmp_path / "pairs.parquet")
    sides = sides_of(tmp_path) if "left" in columns else {"columns": "all"}
    with pytest.raises(
        LimbeckError, match=r"pairs.parquet: (column 'left' .*cannot be read|is damaged|is not a complete parquet)"
    ):
        score_pairs(model, tmp_path / "pairs.parquet", tmp_path / "out", ONE, **sides)
    assert not (tmp_path / "out").exists()


def test_a_list_that_fails_leaves_no_files(model, texts, listed, tmp_path, monkeypatch):  # noqa: F811
    file = write_ids(tmp_path / "pairs.csv", listed)
    monkeypatch.setattr(job_module, "_require_texts", lambda *_: [][1])
    with pytest.raises(IndexError):
        score_pairs(model, file, tmp_path / "out", ONE, **sides_of(tmp_path))
    assert not (tmp_path / "out").exists()


def test_files_of_killed_processes_are_removed(model, texts, listed, tmp_path):  # noqa: F811
    ask = (model, write_ids(tmp_path / "pairs.csv", listed), tmp_path / "out", ONE)
    score_pairs(*ask, **sides_of(tmp_path))
    remains = [
        tmp_path / "out" / place / f".{name}.0123abcd.partial"
        for place, name in (("scores", "part-0000000.parquet"), ("_job", "job.json"), ("_job/work", "rows-0.npy"))
    ]
    for file in remains:
        file.write_bytes(b"half")
    score_pairs(*ask, **sides_of(tmp_path))
    assert not any(file.exists() for file in remains)


@pytest.mark.parametrize("name", ["head.safetensors", "head.json"])
def test_a_worker_refuses_a_head_with_a_flipped_bit(model, texts, listed, tmp_path, name):  # noqa: F811
    """A weight that is a little off would load, and score."""
    score_pairs(model, write_ids(tmp_path / "pairs.csv", listed), tmp_path / "out", ONE, **sides_of(tmp_path))
    file = tmp_path / "out" / "_job" / "head" / name
    flip(file, file.stat().st_size - 3)
    with pytest.raises(LimbeckError, match=f"head: is damaged .{name}: .*; run the same command again"):
        Worker(tmp_path / "out")
