"""How fast a matcher is in each runtime, and how near its outputs stay to torch's.

Single texts and batches are timed apart: what is best for one query need not be best for a corpus. Closeness is the
mean cosine of encodings to torch's, or the correlation of scores where nothing is encoded: for queries one by one, and
for documents in batches, whichever is lower. With judged queries there is nDCG@10 too.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from limbeck.errors import LimbeckError
from limbeck.matchers.base import Matcher
from limbeck.matchers.encoders import encoders
from limbeck.matchers.encoding_matcher import encodes_apart
from limbeck.progress import progress, reporting, say
from limbeck.runtimes.choice import FLOAT32
from limbeck.runtimes.padding import counted_padding
from limbeck.runtimes.sample import Sample
from limbeck.runtimes.sessions import NeedsTorch
from limbeck.runtimes.use import TORCH, use_runtime, use_torch
from limbeck.stores.ragged import Ragged

WARM_UP = 3  # single texts that are not timed
ROUNDS = 3  # of single texts and of batches; the best counts: other work on the machine only ever slows one down
EQUAL = 1e-4  # the largest difference of outputs that count as equal, as a share of the largest output


@dataclass(frozen=True)
class Measured:
    """One runtime on a number of threads."""

    runtime: str
    threads: int
    single_ms: float  # one query, or one pair where nothing is encoded; the median
    per_second: float  # documents, or pairs, in batches
    closeness: float  # the lower of that of single texts and that of batches
    ndcg: float | None = None  # nDCG@10 on judged queries of the sample
    padding: float | None = None  # share of the tokens in batches


def measure(matcher: Matcher, sample: Sample, threads: list[int], runtimes: Sequence[str]) -> list[Measured]:
    """Every one of these runtimes that can run this matcher, on each number of threads. It ends in torch.

    nDCG@10 is measured only if one of them is not float32: the others equal torch.
    """
    gated = sample.judged is not None and not set(runtimes) <= set(FLOAT32)
    work = _work(matcher, sample)
    rows: list[Measured] = []
    with progress("Measuring runtimes", len(runtimes) * len(threads)) as advance:
        with reporting(None):
            exact = work.alone(), work.together()
        for runtime in runtimes:
            try:
                use_runtime(matcher, runtime, sample)
            except LimbeckError as error:  # its outputs are not torch's
                say(f"{error.problem if isinstance(error, NeedsTorch) else error}; it is left out")
            if matcher.runtime == runtime:
                with reporting(None):
                    with counted_padding(encoders(matcher)) as padding:
                        found = work.together()
                    near = 1.0 if runtime == TORCH else min(map(closeness, (work.alone(), found), exact))
                    gain = judged_quality(matcher, sample) if gated else None
                    for count in threads:
                        with on_threads(count):
                            speed = _median_ms(work.single, work.items), _per_second(work.batch, work.many)
                        rows.append(Measured(runtime, count, *speed, near, gain, padding.share))
            use_torch(matcher)
            advance(len(threads))
    return rows


def judged_quality(matcher: Any, sample: Sample) -> float | None:
    """nDCG@10 on the sample's judged queries; None without them, and for a matcher that does not rank documents."""
    ranks = sample.judged is not None and matcher.texts == 2 and matcher.outputs == 1
    return sample.judged.ndcg(matcher.score) if ranks else None  # type: ignore[union-attr]


@dataclass(frozen=True)
class _Work:
    """What is done with one item and with many, and the items."""

    single: Callable[[Any], Any]
    batch: Callable[[Any], Any]
    items: list[Any]
    many: list[Any]

    def alone(self) -> np.ndarray:
        """The outputs of single items, one below the other."""
        return np.concatenate([np.atleast_2d(self.single(item)) for item in self.items])

    def together(self) -> Any:
        return self.batch(self.many)


def _work(matcher: Matcher, sample: Sample) -> _Work:
    if encodes_apart(matcher):
        return _Work(matcher.encode_query, matcher.encode_document, list(sample.queries), list(sample.documents))
    pairs = sample.pairs(matcher.texts)
    return _Work(lambda pair: matcher.score([pair]), matcher.score, pairs[: len(sample.queries)], pairs)


@contextmanager
def on_threads(count: int) -> Iterator[None]:
    """Torch, and every runtime with it, on so many threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _median_ms(single: Callable[[Any], Any], items: list[Any]) -> float:
    for item in items[:WARM_UP]:
        single(item)
    rounds = []
    for _ in range(ROUNDS):
        spent = []
        for item in items:
            began = time.perf_counter()
            single(item)
            spent.append(time.perf_counter() - began)
        rounds.append(float(np.median(spent)))
    return 1000 * min(rounds)


def _per_second(batch: Callable[[Any], Any], many: list[Any]) -> float:
    best = 0.0
    for _ in range(ROUNDS):
        began = time.perf_counter()
        batch(many)
        best = max(best, len(many) / (time.perf_counter() - began))
    return best


def closeness(found: Any, exact: Any) -> float:
    """The mean cosine of vectors to the exact ones; of scores, their correlation.

    One score, or scores that are all equal, have no correlation: 1 if none is off by more than `EQUAL`, else 0.
    """
    mine, right = (_array(each) for each in (found, exact))
    if mine.ndim == 1 or mine.shape[-1] == 1:
        mine, right = mine.ravel(), right.ravel()
        near = float(np.corrcoef(mine, right)[0, 1]) if _varies(mine) and _varies(right) else _agree(mine, right)
    else:
        near = _mean_cosine(*(each.reshape(-1, each.shape[-1]) for each in (mine, right)))
    return near if np.isfinite(near) else 0.0


def _mean_cosine(mine: np.ndarray, right: np.ndarray) -> float:
    """Over all that are not zeros on both sides, as empty slots are; 1 if all are."""
    sizes = np.linalg.norm(mine, axis=1), np.linalg.norm(right, axis=1)
    full = sizes[0] + sizes[1] != 0
    cosines = (mine * right).sum(axis=1)[full] / np.maximum(sizes[0] * sizes[1], 1e-30)[full]
    return float(cosines.mean()) if full.any() else 1.0


def largest_difference(found: Any, exact: Any) -> float:
    """The largest difference to the exact outputs, as a share of the largest of these."""
    mine, right = (_array(each) for each in (found, exact))
    return float(np.abs(mine - right).max(initial=0) / (np.abs(right).max(initial=0) or 1))


def _array(outputs: Any) -> np.ndarray:
    return np.asarray(outputs.vectors if isinstance(outputs, Ragged) else outputs, dtype=np.float64)


def _varies(scores: np.ndarray) -> bool:
    """Whether scores differ by more than their rounding to float32."""
    return len(scores) > 1 and bool(np.ptp(scores) > 1e-6 * np.abs(scores).max())


def _agree(mine: np.ndarray, right: np.ndarray) -> float:
    return float(largest_difference(mine, right) <= EQUAL)
