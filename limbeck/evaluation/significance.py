"""Is the difference between two systems significant? Both are measured on the same queries or pairs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from limbeck.errors import LimbeckError
from limbeck.evaluation.measure_names import canonical_name
from limbeck.evaluation.pairs import CORRELATIONS, ScoredPairs, check_measures, evaluate_pairs, scored_pairs
from limbeck.evaluation.resampled import resampled_measure
from limbeck.progress import track

if TYPE_CHECKING:
    from limbeck.evaluation.ranking_result import RankingResult

_BLOCK = 2**22  # random numbers drawn at a time
_ROUNDING = 1e-12  # differences that are this close, relative to their sum, count as equal


@dataclass(frozen=True)
class Comparison:
    """A system against a baseline on one measure; positive differences favour the system."""

    measure: str
    n: int  # queries or pairs
    system: float
    baseline: float
    low: float  # end of the confidence interval of the difference
    high: float
    confidence: float
    p_values: dict[str, float] = field(default_factory=dict)  # name of the test -> two-sided p
    record: tuple[int, int, int] | None = None  # queries won, tied, lost by the system

    @property
    def difference(self) -> float:
        return self.system - self.baseline

    def __str__(self) -> str:
        tests = ", ".join(f"p = {value:.2g} ({name})" for name, value in self.p_values.items())
        played = "" if self.record is None else "; won {}, tied {}, lost {}".format(*self.record)
        return (
            f"{self.measure} {self.system:.4f} against {self.baseline:.4f}: {self.difference:+.4f} "
            f"[{self.low:+.4f}, {self.high:+.4f}] at {self.confidence:.0%}, {tests}, n = {self.n}{played}"
        )


def compare_rankings(
    system: RankingResult,
    baseline: RankingResult,
    measure: str,
    samples: int = 10_000,
    seed: int = 0,
    confidence: float = 0.95,
) -> Comparison:
    """Paired t-test, randomisation test and bootstrap interval over the judged queries of both systems."""
    name = measure if measure in system.per_query else canonical_name(measure)
    if system.query_ids != baseline.query_ids:
        raise LimbeckError("the two systems were judged on different queries; evaluate both with the same qrels")
    for result in (system, baseline):
        if name not in result.per_query:
            raise LimbeckError(f"{name} was not computed for both systems; evaluate both with the same measures")
    ours, theirs = system.per_query[name], baseline.per_query[name]
    differences = ours - theirs
    low, high = bootstrap_interval(differences, samples, seed, confidence)
    p_values = {"t-test": t_test(differences), "randomisation": randomisation_test(differences, samples, seed)}
    record = (int((differences > 0).sum()), int((differences == 0).sum()), int((differences < 0).sum()))
    system_mean, baseline_mean = float(ours.mean()), float(theirs.mean())
    return Comparison(name, len(ours), system_mean, baseline_mean, low, high, confidence, p_values, record)


def compare_pairs(
    system: ArrayLike,
    baseline: ArrayLike,
    labels: ArrayLike,
    measure: str,
    samples: int = 10_000,
    seed: int = 0,
    confidence: float = 0.95,
) -> Comparison:
    """Paired bootstrap: compute the measure of both systems on the same resamples of the pairs.

    The p-value is the share of resamples whose difference is at least as far from the observed difference as 0 is.
    Resamples on which the measure is undefined (one class only) are left out.
    """
    ours, theirs = scored_pairs(system, labels), scored_pairs(baseline, labels)
    return compare_over_seeds([ours], [theirs], measure, samples, seed, confidence)


def compare_over_seeds(
    ours: Sequence[ScoredPairs],
    theirs: Sequence[ScoredPairs],
    measure: str,
    samples: int = 10_000,
    seed: int = 0,
    confidence: float = 0.95,
) -> Comparison:
    """`compare_pairs` for two systems that were trained with several seeds: the means over seeds are compared."""
    kinds = {task.kind for task in (*ours, *theirs)}
    if len(kinds) > 1:
        raise LimbeckError(
            f"one system has {' scores, the other '.join(sorted(kinds))} ones; compare systems of one task"
        )
    (name,) = check_measures(ours[0], [measure])
    ours_value, theirs_value = (
        float(np.mean([evaluate_pairs(task.scores, task.labels, [name])[name] for task in tasks]))
        for tasks in (ours, theirs)
    )
    observed = ours_value - theirs_value
    if name in CORRELATIONS and any(np.ptp(task.scores) == 0 for task in (*ours, *theirs)):
        raise LimbeckError(f"{name} is undefined where a system gives every pair the same score; use another measure")
    spread = _resampled_differences(name, ours, theirs, samples, seed)
    if not len(spread):
        raise LimbeckError(f"{name} is undefined on every resample of {len(ours[0])} pairs; use more pairs")
    p_values = {"paired bootstrap": _share_at_least(np.abs(spread - observed), abs(observed))}
    low, high = np.quantile(spread, _tails(confidence))
    return Comparison(name, len(ours[0]), ours_value, theirs_value, float(low), float(high), confidence, p_values)


def _resampled_differences(
    name: str, ours: Sequence[ScoredPairs], theirs: Sequence[ScoredPairs], samples: int, seed: int
) -> np.ndarray:
    generator = np.random.default_rng(seed)
    pairs = len(ours[0])
    chances = np.full(pairs, 1 / pairs)
    drawn = []
    for count in track(_blocks(samples, pairs), "Resampling"):
        weights = generator.multinomial(pairs, chances, size=count).astype(np.float64)  # [count, pairs]
        means = (
            np.mean([resampled_measure(name, task, weights) for task in tasks], axis=0) for tasks in (ours, theirs)
        )
        drawn.append(np.subtract(*means))
    spread = np.concatenate(drawn)
    return spread[~np.isnan(spread)]


def t_test(differences: ArrayLike) -> float:
    """Two-sided paired t-test: p that the mean difference is 0."""
    values = _checked(differences)
    if np.ptp(values) == 0:
        return 1.0 if values[0] == 0 else 0.0
    return float(stats.ttest_1samp(values, 0.0).pvalue)


def randomisation_test(differences: ArrayLike, samples: int = 10_000, seed: int = 0) -> float:
    """Two-sided sign-flip test: p that randomly swapping the two systems, per query, gives as large a mean difference.

    If there are at most `samples` of the 2^n swaps, all are counted. Otherwise `samples` swaps are drawn, and the
    observed one is counted among them, so that p is never 0.
    """
    values = _checked(differences)
    observed = abs(values.sum())
    if len(values) < 63 and 2 ** len(values) <= samples:
        bits = np.arange(2 ** len(values))[:, None] >> np.arange(len(values)) & 1
        sums = np.abs((2.0 * bits - 1) @ values)
        return float((sums >= observed - _ROUNDING * np.abs(values).sum()).mean())
    generator = np.random.default_rng(seed)
    sums = [
        2 * (generator.integers(0, 2, size=(count, len(values)), dtype=np.int8) @ values) - values.sum()
        for count in _blocks(samples, len(values))
    ]
    return _share_at_least(np.abs(np.concatenate(sums)), observed, np.abs(values).sum())


def bootstrap_interval(
    differences: ArrayLike, samples: int = 10_000, seed: int = 0, confidence: float = 0.95
) -> tuple[float, float]:
    """Percentile bootstrap interval of the mean difference."""
    values = _checked(differences)
    generator = np.random.default_rng(seed)
    means = [
        values[generator.integers(0, len(values), size=(count, len(values)))].mean(axis=1)
        for count in _blocks(samples, len(values))
    ]
    low, high = np.quantile(np.concatenate(means), _tails(confidence))
    return float(low), float(high)


def holm(p_values: Sequence[float]) -> np.ndarray:
    """Holm's step-down correction: corrected p-values can be read like those of a single test."""
    given = np.asarray(p_values, dtype=np.float64)
    order = np.argsort(given, kind="stable")
    adjusted = np.empty_like(given)
    adjusted[order] = np.minimum(1.0, np.maximum.accumulate(given[order] * np.arange(len(given), 0, -1)))
    return adjusted


def _checked(differences: ArrayLike) -> np.ndarray:
    values = np.asarray(differences, dtype=np.float64)
    if len(values) < 2:
        raise LimbeckError(f"{len(values)} query is too few to compare two systems; use at least 2")
    if not np.isfinite(values).all():
        raise LimbeckError("a difference between the two systems is not a finite number; evaluate them again")
    return values


def _share_at_least(drawn: np.ndarray, observed: float, scale: float = 1.0) -> float:
    return float((1 + (drawn >= observed - _ROUNDING * scale).sum()) / (1 + len(drawn)))


def _blocks(samples: int, width: int) -> list[int]:
    """Split `samples` rows of `width` numbers so that a block stays small in memory."""
    if samples < 1:
        raise LimbeckError(f"{samples} resamples are too few; use 1000 or more")
    most = max(1, _BLOCK // width)
    return [min(most, samples - start) for start in range(0, samples, most)]


def _tails(confidence: float) -> tuple[float, float]:
    if not 0 < confidence < 1:
        raise LimbeckError(f"a confidence of {confidence} is not between 0 and 1; use 0.95")
    return (1 - confidence) / 2, (1 + confidence) / 2
