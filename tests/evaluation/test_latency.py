from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from limbeck.errors import LimbeckError
from limbeck.evaluation import latency
from limbeck.evaluation.latency import folder_bytes, measure_latency, parameter_count


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
