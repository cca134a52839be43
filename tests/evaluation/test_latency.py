from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from limbeck.errors import LimbeckError
from limbeck.evaluation import latency
from limbeck.evaluation.latency import folder_bytes, measure_interleaved, measure_latency, parameter_count


def test_times_are_those_of_the_calls_after_the_warm_up(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0
    calls: list[float] = []

    def work(milliseconds: float) -> None:
        nonlocal now
        calls.append(milliseconds)
        now += int(1e6 * (milliseconds if len(calls) > 2 else 100))

    monkeypatch.setattr(latency, "time", SimpleNamespace(perf_counter_ns=lambda: now))
    found = measure_latency(work, [2, 4], warmup=2, repeats=10)
    assert len(calls) == 22
    assert found.calls == 20
    assert found.mean_ms == pytest.approx(3)
    assert (found.p50_ms, found.p99_ms) == (3, 4)
    assert found.per_second == pytest.approx(1000 / 3)
    assert "per second" in str(found)


def test_nothing_to_time_is_refused() -> None:
    with pytest.raises(LimbeckError, match="nothing to time"):
        measure_latency(print, [])


def test_systems_take_turns_and_the_first_call_of_a_turn_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    now, calls = 0, list[tuple[str, int]]()

    def system(name: str, milliseconds: float):
        def work(item: int) -> None:
            nonlocal now
            cold = not calls or calls[-1][0] != name
            calls.append((name, item))
            now += int(1e6 * (100 if cold else milliseconds))

        return work

    monkeypatch.setattr(latency, "time", SimpleNamespace(perf_counter_ns=lambda: now))
    found = measure_interleaved({"a": system("a", 2), "b": system("b", 5)}, [0, 1, 2], block=2)
    assert {name: (each.p50_ms, each.p99_ms, each.calls) for name, each in found.items()} == {
        "a": (2, 2, 3),
        "b": (5, 5, 3),
    }
    assert [name for name, _ in calls] == ["a"] * 3 + ["b"] * 3 + ["b"] * 2 + ["a"] * 2  # reversed in the second turn
    assert [item for name, item in calls if name == "a"] == [0, 0, 1, 2, 2]
    with pytest.raises(LimbeckError, match="nothing to time"):
        measure_interleaved({}, [1])


def test_folder_size_counts_all_files_below(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "a").write_bytes(b"12345")
    (tmp_path / "deep" / "b").write_bytes(b"678")
    assert folder_bytes(tmp_path) == 8
    with pytest.raises(LimbeckError, match="no such folder"):
        folder_bytes(tmp_path / "absent")


def test_a_shared_parameter_counts_once() -> None:
    model = torch.nn.ModuleList([torch.nn.Linear(3, 4), torch.nn.Linear(4, 3, bias=False)])
    assert parameter_count(model) == 3 * 4 + 4 + 4 * 3
    model[1].weight = torch.nn.Parameter(torch.zeros(3, 4))
    model.append(model[0])
    assert parameter_count(model) == 28
