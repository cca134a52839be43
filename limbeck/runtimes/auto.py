"""The fastest runtime that keeps the quality, by a measurement on this machine that is made once and remembered.

`runtimes/` in the cache folder keeps it, under the model's identity, the processor's name, the number of threads and
the versions of Limbeck and all libraries, once for the files that were measured on, as they were, and once for all
other data. It can be deleted at any time.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from limbeck.data.cache import cache_directory, file_state
from limbeck.errors import LimbeckError
from limbeck.files import digest
from limbeck.matchers.base import Matcher
from limbeck.matchers.encoders import encoders
from limbeck.processor import processor_name
from limbeck.progress import say
from limbeck.runtimes.choice import (
    CALIBRATED,
    FLOAT32,
    RUNTIMES,
    installed_runtimes,
    installed_versions,
    measured_source,
    size_of_job,
)
from limbeck.runtimes.gate import Gate, lost
from limbeck.runtimes.graph_cache import keeping
from limbeck.runtimes.job_size import is_long
from limbeck.runtimes.measure import Measured, measure
from limbeck.runtimes.sample import Sample, sample_at_hand, sample_of
from limbeck.runtimes.sessions import NeedsTorch
from limbeck.runtimes.use import TORCH, use_runtime, use_torch
from limbeck.sealed import read_if_whole, write_sealed
from limbeck.stores.manifest import canonical

LIBRARIES = (
    "limbeck", "torch", "transformers", "sentence-transformers", "tokenizers", "onnx", "onnxruntime", "openvino", "nncf"
)  # fmt: skip


@dataclass(frozen=True)
class Choice:
    """The best runtime for one text at a time and for batches, and what it was measured on."""

    single: str
    batch: str
    source: str
    judged: str | None  # which queries gave nDCG@10
    threads: int  # that they were chosen for
    tried: tuple[str, ...]  # the runtimes that were measured, or could not run the model
    rows: tuple[Measured, ...]

    @classmethod
    def of(
        cls,
        rows: Sequence[Measured],
        source: str,
        threads: int,
        judged: str | None = None,
        tried: Sequence[str] = RUNTIMES,
    ) -> Choice:
        """The fastest of the runtimes that pass the gate, on this number of threads."""
        exact = _exact(rows)
        good = [row for row in rows if row.threads == threads and keeps_quality(row, exact)]
        single = min(good, key=lambda row: row.single_ms).runtime
        batch = max(good, key=lambda row: row.per_second).runtime
        return cls(single, batch, source, judged, threads, tuple(tried), tuple(rows))

    def among(self, runtimes: Sequence[str]) -> Choice:
        """The choice if there were no other runtimes than these."""
        rows = [row for row in self.rows if row.runtime in runtimes]
        return Choice.of(rows, self.source, self.threads, self.judged, self.tried)

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
    it on these data. On a GPU, in bfloat16 or without a transformer it stays in torch.
    """
    if not _can_choose(matcher):
        return matcher
    found = remembered(matcher, measured_source(), installed_runtimes())
    choice = found or choose(matcher, sample_at_hand(), [])
    return _use(matcher, choice, single)


def use_default(matcher: Matcher, single: bool) -> Matcher:
    """Run the matcher in the fastest float32 runtime, whose outputs may be stored with torch's.

    A long job measures if nothing is remembered. A short one does not: measuring would take longer than the job.
    """
    runtimes = [runtime for runtime in installed_runtimes() if runtime in FLOAT32]
    if not _can_choose(matcher) or runtimes == [TORCH]:
        return matcher
    choice = remembered(matcher, None, runtimes)
    can_remember = cache_directory("runtimes") is not None
    if choice is None and not single and can_remember and is_long(matcher, size_of_job(matcher)):
        choice = choose(matcher, sample_at_hand(), [], runtimes)
    if choice is None:
        return matcher
    return _use(matcher, choice.among(runtimes), single)


def _use(matcher: Matcher, choice: Choice, single: bool) -> Matcher:
    runtime, sample = choice.single if single else choice.batch, None
    if runtime == CALIBRATED and measured_source() is None:
        with suppress(LimbeckError):
            sample = sample_of(choice.source)  # the texts that it was measured with
        if sample is None:
            return _use(matcher, choice.among([name for name in choice.tried if name != CALIBRATED]), single)
    try:
        use_runtime(matcher, runtime, sample)
    except LimbeckError as error:  # nobody asked for this runtime
        say(f"the model stays in torch: {error.problem if isinstance(error, NeedsTorch) else error}")
    return matcher


def _can_choose(matcher: Matcher) -> bool:
    return not matcher.bf16 and matcher.device.type == "cpu" and bool(encoders(matcher))


def choose(matcher: Matcher, sample: Sample, threads: Sequence[int], runtimes: Sequence[str] | None = None) -> Choice:
    """Measure runtimes, by default all that are installed, on a sample, and remember the best on as many threads as
    torch has. Other numbers of threads are measured and remembered too: workers of `limbeck score` have one each.
    """
    before, tried, usual = matcher.runtime, list(runtimes or installed_runtimes()), torch.get_num_threads()
    use_torch(matcher)
    say(f"measuring {', '.join(tried)} on texts of {sample.source}")
    counts = sorted({*threads, usual})
    rows = measure(matcher, sample, counts, tried)
    judged = str(sample.judged) if any(row.ndcg is not None for row in rows) else None
    choices = {count: Choice.of(rows, sample.source, count, judged, tried) for count in counts}
    with keeping("the measurement"):
        for source in dict.fromkeys((sample.source, measured_source(), None)):
            for count, choice in choices.items():
                place = _place(matcher, count, source)
                if place is not None:
                    write_sealed(place, {**asdict(choice), "rows": [asdict(row) for row in rows]})
    use_runtime(matcher, before)
    return choices[usual]


def remembered(matcher: Matcher, source: str | None, runtimes: Sequence[str]) -> Choice | None:
    """What was measured before, for this model on this processor and as many threads; None unless all of these runtimes
    were tried, on these data (or, without a source, on any).
    """
    place = _place(matcher, torch.get_num_threads(), source)
    record = read_if_whole(place) if place is not None else None
    if record is None:
        return None
    try:
        rows = tuple(Measured(**row) for row in record["rows"])
        choice = Choice.of(rows, record["source"], record["threads"], record["judged"], record["tried"])
    except (KeyError, TypeError, ValueError):  # another version's
        return None
    return choice if set(runtimes) <= set(choice.tried) else None


def _place(matcher: Matcher, threads: int, source: str | None = None) -> Path | None:
    folder = cache_directory("runtimes")
    if folder is None:
        return None
    identity = {name: value for name, value in matcher.identity().items() if name != "computed"}
    key: dict[str, Any] = {
        "model": identity,
        "processor": processor_name(),
        "threads": threads,
        "versions": installed_versions(*LIBRARIES),
        "data": _state_of(source) if source is not None else None,
    }
    return folder / f"{digest(canonical(key))}.json"


def _state_of(source: str) -> str:
    """A value that changes with the files of a data set; for built-in data and hub sets, the name."""
    place = Path(source).expanduser()
    files = [place] if place.is_file() else sorted(file for file in place.rglob("*") if file.is_file())
    return digest(str(place.resolve()), *(f"{file} {file_state(file)}" for file in files)) if files else source
