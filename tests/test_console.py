"""What a log shows of long work."""

from __future__ import annotations

import pytest

from limbeck import console
from limbeck.console import Bars, Lines


def test_a_log_tells_the_whole_task_and_what_it_is_at(capsys, monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(console.time, "monotonic", lambda: clock[0])
    lines = Lines()
    with lines.task("Scoring", 2000) as outer:
        for _ in range(4):
            with lines.task("Reading", 500) as inner:
                clock[0] += 6
                inner(500)
            outer(500)
    said = capsys.readouterr().err.splitlines()
    assert said == [
        "Scoring: 500 of 2,000, 12 s (Reading: 500 of 500)",
        "Scoring: 1,500 of 2,000, 24 s, about 9 s left (Reading: 500 of 500)",
        "Scoring: done in 24 s",
    ]


def test_long_work_is_reported_less_often_and_short_work_not_at_all(capsys, monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(console.time, "monotonic", lambda: clock[0])
    lines = Lines()
    with lines.task("Short", None) as advance:
        clock[0] += 5
        advance(1)
    assert not capsys.readouterr().err
    with lines.task("Long", None) as advance:
        for _ in range(7200):
            clock[0] += 1
            advance(1)
    assert len(capsys.readouterr().err.splitlines()) < 180  # 10 s apart at first, a minute in the end


@pytest.mark.parametrize(
    ("step", "left"), [(35, "about 105 s left"), (600, "about 30 min left"), (36000, "about 30 h left")]
)
def test_the_remaining_time_ignores_the_work_of_an_earlier_run(capsys, monkeypatch, step, left):
    clock = [0.0]
    monkeypatch.setattr(console.time, "monotonic", lambda: clock[0])
    lines = Lines()
    with lines.task("Scoring", 1000) as advance:
        advance(900)  # was there before
        for _ in range(2):
            clock[0] += step
            advance(20)
    assert capsys.readouterr().err.splitlines()[1] == f"Scoring: 940 of 1,000, {2 * step} s, {left}"


def test_a_bar_shows_the_remaining_time_even_if_steps_are_far_apart(monkeypatch):
    bars, clock = Bars(), [0.0]
    monkeypatch.setattr(bars.progress, "get_time", lambda: clock[0])
    with bars.task("Scoring", 1000) as advance:
        advance(0)
        for _ in range(2):
            clock[0] += 7200
            advance(100)
        assert bars.progress.tasks[0].time_remaining == 8 * 7200


@pytest.mark.parametrize("kind", [Lines, Bars])
def test_work_that_is_cut_short_is_not_called_done(capsys, monkeypatch, kind):
    clock = iter(range(0, 10_000, 30))
    monkeypatch.setattr("limbeck.console.time.monotonic", lambda: float(next(clock)))
    with pytest.raises(KeyboardInterrupt), kind().task("Scoring", 10):
        raise KeyboardInterrupt
    assert "done" not in capsys.readouterr().err
    with kind().task("Scoring", 10):
        pass
    assert "Scoring" in capsys.readouterr().err
