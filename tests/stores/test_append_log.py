from __future__ import annotations

import pytest

from limbeck.errors import LimbeckError
from limbeck.stores import append_log
from limbeck.stores.append_log import AppendLog


def test_appended_rows_are_read_back_by_every_reader(tmp_path):
    log = AppendLog(tmp_path / "log.jsonl")
    assert len(log) == 0 and list(log.records()) == []
    log.append([{"n": 1}, {"n": "zwei\nü"}])
    log.append({"n": n} for n in (3, 4))
    again = AppendLog(tmp_path / "log.jsonl")
    assert len(log) == len(again) == 4
    assert [record["n"] for record in again.records()] == [1, "zwei\nü", 3, 4]
    assert [record["n"] for record in again.records(2)] == [3, 4] and list(again.records(4)) == []


@pytest.mark.parametrize("block", [1, 4, 7, 2**20])
def test_a_line_that_was_cut_short_is_dropped_wherever_the_cut_is(tmp_path, monkeypatch, block):
    monkeypatch.setattr(append_log, "_BLOCK", block)
    path = tmp_path / "log.jsonl"
    whole = '{"n": 1}\n{"n": "ü"}\n'.encode()
    for size in range(len(whole) + 1):
        path.write_bytes(whole[:size])
        log = AppendLog(path)
        assert len(log) == whole[:size].count(b"\n") == len(list(log.records()))
        log.append([{"n": 9}])
        assert [record["n"] for record in AppendLog(path).records()] == [*[1, "ü"][: len(log) - 1], 9]


def test_a_line_that_is_not_json_is_named(tmp_path):
    (tmp_path / "log.jsonl").write_text('{"n": 1}\n{"n": \n')
    with pytest.raises(LimbeckError, match="log.jsonl:2: is not valid JSON"):
        list(AppendLog(tmp_path / "log.jsonl").records())


def test_with_checksums_lines_from_a_damaged_one_on_are_dropped(tmp_path):
    path = tmp_path / "log.jsonl"
    AppendLog(path, checked=True).append([{"n": n, "text": "zwei\nü"} for n in range(3)])
    whole = path.read_bytes()
    ends = [place + 1 for place, byte in enumerate(whole) if byte == 10]
    assert len(AppendLog(path, checked=True)) == 3
    for place in range(len(whole)):
        for bit in range(8):
            damaged = bytearray(whole)
            damaged[place] ^= 1 << bit
            path.write_bytes(damaged)
            log = AppendLog(path, checked=True)
            assert len(log) == sum(end <= place for end in ends)
            assert [record["n"] for record in log.records()] == list(range(len(log)))
            assert path.read_bytes() == whole[: ([0, *ends])[len(log)]]
