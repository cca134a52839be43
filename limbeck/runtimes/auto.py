"""The fastest runtime that keeps the quality, by a measurement on this machine that is made once and remembered.

`runtimes/` in the cache folder keeps it, under the model's identity, the processor's name, the number of threads and
the versions of all libraries; it can be deleted at any time.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from limbeck.data.cache import cache_directory
from limbeck.errors import LimbeckError
from limbeck.files import digest
from limbeck.matchers.base import Matcher
from limbeck.matchers.encoders import encoders
from limbeck.progress import say
from limbeck.runtimes.choice import installed_runtimes, measured_source
from limbeck.runtimes.gate import Gate, lost
from limbeck.runtimes.measure import Measured, measure
from limbeck.runtimes.processor import processor_name
from limbeck.runtimes.sample import Sample, sample_of
from limbeck.runtimes.use import TORCH, use_runtime, use_torch
from limbeck.sealed import read_if_whole, write_sealed
from limbeck.stores.manifest import canonical

LIBRARIES = ("torch", "transformers", "onnxruntime", "openvino")


@dataclass(frozen=True)
class Choice:
    """The best runtime for one text at a time and for batches, and what it was measured on."""

    single: str
    batch: str
    source: str
    judged: str | None  # which queries gave nDCG@10
    rows: tuple[Measured, ...]

    @classmethod
    def of(cls, rows: list[Measured], source: str, judged: str | None = None) -> Choice:
        """The fastest of the runtimes that pass the gate, at the largest number of threads that was measured."""
        most, exact = max(row.threads for row in rows), _exact(rows)
        good = [row for row in rows if row.threads == most and keeps_quality(row, exact)]
        single = min(good, key=lambda row: row.single_ms).runtime
        return cls(single, max(good, key=lambda row: row.per_second).runtime, source, judged, tuple(rows))

    def lost(self, row: Measured) -> float | None:
        """The share of torch's nDCG@10 that a runtime loses."""
        return lost(row.ndcg, _exact(self.rows))

    def keeps(self, row: Measured) -> bool:
        """Whether a runtime passes the gate."""
        return keeps_quality(row, _exact(self.rows))


def _exact(rows: Sequence[Measured]) -> float | None:
    """The nDCG@10 of torch."""
    return next((row.ndcg for row in rows if row.runtime == TORCH), None)


def keeps_quality(row: Measured, exact: float | None) -> bool:
    return row.runtime == TORCH or Gate().passes(row.closeness, lost(row.ndcg, exact))


def use_best(matcher: Matcher, single: bool) -> Matcher:
    """Run the matcher in the best runtime for single texts, or for batches; measured now if nothing is remembered of
    it. On a GPU, in bfloat16 or without a transformer it stays in torch.
    """
    if matcher.bf16 or matcher.device.type != "cpu" or not encoders(matcher):
        return matcher
    choice = remembered(matcher) or choose(matcher, _sample(), [torch.get_num_threads()])
    return use_runtime(matcher, choice.single if single else choice.batch)


def _sample() -> Sample:
    """Texts of the data that the command reads, or built-in ones where these have no queries or no documents."""
    source = measured_source()
    if source is not None:
        with suppress(LimbeckError):
            return sample_of(source)
    return sample_of()


def choose(matcher: Matcher, sample: Sample, threads: list[int]) -> Choice:
    """Measure all runtimes on a sample, and remember the best."""
    before = matcher.runtime
    use_torch(matcher)
    say(f"measuring {', '.join(installed_runtimes())} on texts of {sample.source}")
    rows = measure(matcher, sample, threads)
    judged = str(sample.judged) if any(row.ndcg is not None for row in rows) else None
    choice = Choice.of(rows, sample.source, judged)
    place = _place(matcher, max(threads))
    if place is not None:
        write_sealed(place, {**asdict(choice), "rows": [asdict(row) for row in choice.rows]})
    use_runtime(matcher, before)
    return choice


def remembered(matcher: Matcher) -> Choice | None:
    """What was measured before, for this model on this processor and as many threads."""
    place = _place(matcher, torch.get_num_threads())
    record = read_if_whole(place) if place is not None else None
    if record is None:
        return None
    try:
        rows = tuple(Measured(**row) for row in record["rows"])
        choice = Choice(record["single"], record["batch"], record["source"], record["judged"], rows)
    except (KeyError, TypeError):  # another version's
        return None
    return choice if {choice.single, choice.batch} <= set(installed_runtimes()) else None


def _place(matcher: Matcher, threads: int) -> Path | None:
    folder = cache_directory("runtimes")
    if folder is None:
        return None
    identity = {name: value for name, value in matcher.identity().items() if name != "computed"}
    key: dict[str, Any] = {
        "model": identity,
        "processor": processor_name(),
        "threads": threads,
        "versions": [_version(name) for name in LIBRARIES],
    }
    return folder / f"{digest(canonical(key))}.json"


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
