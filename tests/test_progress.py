from __future__ import annotations

from contextlib import contextmanager

from limbeck.progress import progress, reporting, track


class Watcher:
    """Notes what a person would see."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, int | None, list[int]]] = []

    @contextmanager
    def task(self, label, total):
        counts: list[int] = []
        self.seen.append((label, total, counts))
        yield counts.append

    def say(self, message):
        pass


def test_a_part_of_the_same_name_moves_the_whole_on_and_counts_once():
    watcher = Watcher()
    with reporting(watcher), progress("Encoding", 10) as advance:
        for size in (6, 4):
            with progress("Encoding", size) as part:
                part(3)
                part(size - 3)
            advance(size)
    assert [(label, total) for label, total, _ in watcher.seen] == [("Encoding", 10)]
    assert [count for count in watcher.seen[0][2] if count] == [3, 3, 3, 1]


def test_an_inner_task_with_less_progress_leaves_the_rest_to_the_outer_one():
    watcher = Watcher()
    with reporting(watcher), progress("Encoding", 10) as advance:
        with progress("Encoding", 4) as part:
            part(4)  # the others were stored already
        advance(10)
    assert sum(watcher.seen[0][2]) == 10


def test_parts_of_parts_count_once():
    watcher = Watcher()
    with reporting(watcher), progress("Encoding", 8) as advance:
        with progress("Encoding", 4) as block:
            with progress("Encoding", 2) as part:
                part(1)
                part(1)
            block(2)
            block(2)  # nothing inside reported these
        advance(4)
        advance(4)
    assert [(label, total) for label, total, _ in watcher.seen] == [("Encoding", 8)]
    assert [count for count in watcher.seen[0][2] if count] == [1, 1, 2, 4]


def test_other_names_are_separate_tasks():
    watcher = Watcher()
    with reporting(watcher):
        for _ in track([1, 2], "Outer"):
            assert list(track([1], "Inner")) == [1]
        assert list(track([1], "Outer")) == [1]
    assert [label for label, *_ in watcher.seen] == ["Outer", "Inner", "Inner", "Outer"]
    assert watcher.seen[0][2] == [1, 1]
