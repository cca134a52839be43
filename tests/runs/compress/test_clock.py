from __future__ import annotations

import time
from pathlib import Path

import pytest

from limbeck.runs.compress.clock import Clock


def test_the_time_of_all_calls_counts_also_if_one_was_killed(tmp_path: Path) -> None:
    first = Clock(2, tmp_path / "time.json", time.monotonic() - 30)
    first.save()  # and then it is killed
    second = Clock(2, tmp_path / "time.json")
    assert second.left == pytest.approx(90, abs=5) and not second.was_finished


def test_a_run_is_finished_for_as_many_minutes_as_a_call_had_that_came_to_its_end(tmp_path: Path) -> None:
    first = Clock(2, tmp_path / "time.json")
    first.finish()
    first.save()
    assert [Clock(minutes, tmp_path / "time.json").was_finished for minutes in (1, 2, 3, None)] == [
        True, True, False, False
    ]  # fmt: skip


def test_without_a_limit_there_is_always_time() -> None:
    assert Clock(None).left == float("inf")
