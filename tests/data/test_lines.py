import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from limbeck.data.json_array import read_json_array
from limbeck.data.lines import blocks, lines
from limbeck.errors import LimbeckError
from limbeck.progress import Advance, reporting
from tests.data.folders import write


def test_blocks_end_at_line_ends_and_count_lines(tmp_path: Path) -> None:
    content = "".join(f"line {number}\n" for number in range(1, 500)) + "last"
    file = write(tmp_path / "a.txt.gz", content)
    found = list(blocks(file, size=100))
    assert b"".join(block for _, block in found).decode() == content
    assert all(block.endswith(b"\n") for _, block in found[:-1])
    for first, block in found[:-1]:
        assert block.startswith(f"line {first}\n".encode())
    assert [number for number, _ in lines(file)] == list(range(1, 501))


def test_a_line_longer_than_a_block_stays_whole(tmp_path: Path) -> None:
    file = write(tmp_path / "a.txt", "x" * 1000 + "\nb\n")
    assert next(block for _, block in blocks(file, size=10)).startswith(b"x" * 1000 + b"\n")


def test_a_byte_order_mark_is_not_part_of_the_first_line(tmp_path: Path) -> None:
    for content in ("\ufeff1\ta\n2\tb\n", "\ufeff1\ta"):
        assert next(lines(write(tmp_path / "a.tsv", content))) == (1, "1\ta")


def test_unicode_separators_do_not_end_a_line(tmp_path: Path) -> None:
    file = write(tmp_path / "a.txt", "a\u2028b\x85c\x0cd\n\nnext\r\n")
    assert list(lines(file)) == [(1, "a\u2028b\x85c\x0cd"), (3, "next")]


def test_reading_a_large_file_shows_progress_up_to_its_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("limbeck.data.lines._PROGRESS_FROM_BYTES", 1000)
    shown: dict[str, list[int]] = {}

    class Reporter:
        @contextmanager
        def task(self, label: str, total: int | None) -> Iterator[Advance]:
            shown[label] = [total or 0]
            yield shown[label].append

        def say(self, message: str) -> None:
            raise AssertionError(message)

    big, packed, small = (write(tmp_path / name, "x\n" * 5000) for name in ("big.tsv", "big.tsv.gz", "small.tsv"))
    write(small, "x\n")
    with reporting(Reporter()):
        for file in (big, packed, small):
            list(blocks(file, size=1024))
    assert list(shown) == ["Reading big.tsv"]
    assert shown["Reading big.tsv"][0] == sum(shown["Reading big.tsv"][1:]) == 10_000


@pytest.mark.parametrize("indent", [None, 4])
@pytest.mark.parametrize("size", [7, 64, 1 << 20])
def test_an_array_is_read_object_by_object_with_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, indent: int | None, size: int
) -> None:
    monkeypatch.setattr("limbeck.data.json_array.blocks", lambda path: blocks(path, size))
    records = [{"n": number, "text": 'a ] , [ { "' * (number % 4)} for number in range(50)]
    text = json.dumps(records, indent=indent)
    found = list(read_json_array(write(tmp_path / "a.json", text)))
    assert [record for _, record in found] == records
    assert [line for line, _ in found] == ([2 + 4 * k for k in range(50)] if indent else [1] * 50)


def test_objects_one_after_the_other_are_read_too(tmp_path: Path) -> None:
    file = write(tmp_path / "a.json", '{"a": 1}\n{"a": 2}\n')
    assert list(read_json_array(file)) == [(1, {"a": 1}), (2, {"a": 2})]


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ('[\n{"a": 1},\n{"a": }\n]', ":3: is not valid JSON"),
        ('[\n{"a": 1},\n{"a": 2}\n', "ends before its closing bracket"),
        ('[\n{"a": 1},\n{"a": ', ":3: is not valid JSON"),
        ('[\n{"a": 1},\n3]', ":3: contains a number, not an object"),
        (b'[\n{"a": "\xff"}]', ":2: is not valid UTF-8"),
    ],
)
def test_a_broken_array_is_named_with_its_line(tmp_path: Path, content: str | bytes, problem: str) -> None:
    with pytest.raises(LimbeckError, match=problem):
        list(read_json_array(write(tmp_path / "a.json", content)))
