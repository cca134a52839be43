from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from limbeck.runs.compress.bench import CompressBench
from limbeck.runs.compress.clock import Clock
from limbeck.runs.compress.contenders import FEW, Contender, Contenders
from limbeck.runs.compress.run import compress


def test_the_reserve_has_the_time_to_measure_students_and_to_time_all_rows(tmp_path) -> None:
    bench: Any = SimpleNamespace(timed=lambda _: [f"q{number}" for number in range(48)])
    nothing: Any = None
    contenders = Contenders(bench, nothing, tmp_path, Clock(None))
    contenders.spent = {"torch": 10.0, "int8": 20.0}
    contenders.rows = {name: Contender(nothing, nothing, name, "", 500.0) for name in ("teacher", "teacher, int8")}
    timing = 2 * 0.5 * (48 + 6)  # six turns, each with a call more
    assert contenders.reserve(0) == pytest.approx(5 + timing)
    assert contenders.reserve(3) == pytest.approx(5 + 3 * (10 + 20) / 2 + timing)


def test_a_slow_model_is_timed_in_turns_only_once_whatever_the_number_of_students(
    dual, beir, tmp_path, few_steps, monkeypatch
) -> None:
    whole, seen = CompressBench.times, list[tuple[set[str], int | None]]()

    def times(self, calls, exam, queries=None):
        seen.append((set(calls), queries))
        return whole(self, calls, exam, queries)

    monkeypatch.setattr(CompressBench, "times", times)
    found = compress(str(dual), str(beir), tmp_path / "out", minutes=60)
    of_teacher = [(names, queries) for names, queries in seen if "teacher" in names]
    assert of_teacher == [({"teacher"}, FEW), ({row.name for row in found.rows} | {"search"}, None)]
