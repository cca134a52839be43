from __future__ import annotations

import time
from pathlib import Path

import pytest
import torch

from limbeck.errors import LimbeckError
from limbeck.evaluation.latency import folder_bytes, measure_latency, parameter_count


def test_times_are_those_of_the_calls_after_the_warm_up() -> None:
    calls: list[float] = []

    def work(seconds: float) -> None:
        calls.append(seconds)
        time.sleep(seconds if len(calls) > 2 else 0.1)

    found = measure_latency(work, [0.002, 0.004], warmup=2, repeats=10)
    assert len(calls) == 22
    assert found.calls == 20
    assert 2.9 <= found.mean_ms < 30
    assert found.p50_ms <= found.p99_ms
    assert found.p99_ms < 100  # the slow first calls are not in it
    assert found.per_second == pytest.approx(1000 / found.mean_ms)
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
