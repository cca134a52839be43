"""Run work in a fresh process and measure its peak memory."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from pathlib import Path
from typing import Any


def alone(work: Callable[..., Any], *arguments: Any) -> Any:
    """Run in a fresh process, so that the peak memory belongs to this work only."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(work, arguments)


def peak_mb() -> float:
    """The peak memory of this process; getrusage would include the parent's from before the exec."""
    (line,) = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM")]
    return int(line.split()[1]) / 1024
