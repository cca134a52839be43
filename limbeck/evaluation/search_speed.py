"""The cost of a search: milliseconds of every stage, bytes of every part, as in Tables 1 and 2 of TCT-ColBERT."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from limbeck.errors import LimbeckError
from limbeck.progress import reporting, track
from limbeck.search.index import DEPTH, SearchIndex, Where
from limbeck.search.sizes import part_bytes

WARM_UP = 3
MOST_QUERIES = 1000


@dataclass(frozen=True)
class Stage:
    """Milliseconds of one stage of a search, per query."""

    name: str
    p50_ms: float
    p99_ms: float


@dataclass(frozen=True)
class SearchTimings:
    """The stages of single queries run one after the other, `total` for all stages together, and bytes per passage."""

    mode: str
    queries: int
    passages: int
    stages: list[Stage]
    bytes_per_passage: dict[str, float]

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    def __getitem__(self, name: str) -> Stage:
        return next(stage for stage in self.stages if stage.name == name)


def search_timings(
    index: SearchIndex,
    queries: Sequence[str],
    k: int = 10,
    mode: str | None = None,
    fusion: str | None = None,
    alpha: float | None = None,
    where: Where = (),
    depth: int = DEPTH,
) -> SearchTimings:
    """Time encoding, dense search, sparse search and fusion, for up to 1000 queries after a warm-up."""
    if not len(queries):
        raise LimbeckError("no queries to time; give at least one")
    mode = index.mode(mode)
    allowed = index.allowed(where)
    how = index.fusion(fusion, alpha) if mode == "hybrid" else ("", 0.0)
    depth = max(k, depth) if mode == "hybrid" else k
    timed = list(queries[:MOST_QUERIES])
    warm_up = [timed[place % len(timed)] for place in range(WARM_UP)]
    spent: list[dict[str, float]] = []
    for place, query in enumerate(track([*warm_up, *timed], "Timing")):
        times: dict[str, float] = {}
        with reporting(None):  # drawing a progress bar takes longer than a search
            if mode != "sparse":
                with _timing(times, "encode"):
                    vectors = index.dense.encode([query])
                with _timing(times, "dense"):
                    (dense,) = index.dense.search(vectors, depth, allowed)
            if mode != "dense":
                with _timing(times, "sparse"):
                    (sparse,) = index.sparse_lists([query], depth, allowed)
            if mode == "hybrid":
                with _timing(times, "fusion"):
                    index.fused(dense, sparse, k, *how)
        if place >= WARM_UP:
            spent.append({**times, "total": sum(times.values())})
    stages = [_stage(name, [times[name] for times in spent]) for name in spent[0]]
    sizes = {part: count / max(1, len(index)) for part, count in part_bytes(index).items() if part != "model"}
    return SearchTimings(mode, len(timed), len(index), stages, sizes)


@contextmanager
def _timing(times: dict[str, float], name: str) -> Iterator[None]:
    began = time.perf_counter_ns()
    yield
    times[name] = (time.perf_counter_ns() - began) / 1e6


def _stage(name: str, ms: list[float]) -> Stage:
    p50, p99 = np.percentile(ms, [50, 99])
    return Stage(name, float(p50), float(p99))
