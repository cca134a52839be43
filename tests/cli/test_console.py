"""What a log shows of long work."""

from __future__ import annotations

from limbeck.cli import console
from limbeck.cli.console import Lines


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
        "Scoring: 1,500 of 2,000, 24 s (Reading: 500 of 500)",
        "Scoring: done in 24 s",
    ]


def test_long_work_is_told_of_more_rarely_and_short_work_not_at_all(capsys, monkeypatch):
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
