"""The weight of the sparse scores in a hybrid (Eq. 7 of TCT-ColBERT), tuned on queries that are not reported on.

Both lists of every query are given; nothing is searched here. Alphas are tried on a logarithmic grid around the ratio
of the two score scales, then on a finer grid around the best.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from limbeck.data.dataset import Qrels, Run
from limbeck.errors import LimbeckError
from limbeck.evaluation.measure_names import canonical_name
from limbeck.evaluation.measures import evaluate_run
from limbeck.evaluation.ranking_result import RankingResult
from limbeck.evaluation.significance import Comparison, compare_rankings
from limbeck.progress import track
from limbeck.search.hybrid import List, fuse, reciprocal_rank_fusion, require_alpha

DEPTH = 1000  # documents of each list, as in the paper
FOLDS = 5
LUCK = 0.05  # the p-value below which a difference is significant
_DECADES = 2  # on both sides of the ratio of the scales
_STEPS = 5  # between two neighbours of the grid when it is refined

Lists = Mapping[str, tuple[List, List]]  # query id -> its dense and its sparse list
RowsOf = Callable[[Sequence[str]], np.ndarray]  # document ids -> rows, -1 for unknown ids


class FusionPoint(NamedTuple):
    """The quality with one alpha."""

    alpha: float
    value: float


@dataclass(frozen=True)
class Tuning:
    """The curve, its best alpha, and whether the difference is significant."""

    measure: str
    queries: int
    curve: tuple[FusionPoint, ...]  # alphas ascending
    alpha: float
    dense: float  # only the dense list
    sparse: float
    rrf: float  # reciprocal rank fusion, which has no parameter to tune
    comparison: Comparison  # cross-fitted hybrid against its better part
    against_rrf: Comparison  # cross-fitted hybrid against reciprocal rank fusion, the default of an index

    @property
    def value(self) -> float:
        """The measure at the chosen alpha, on the queries used to choose it."""
        return dict(self.curve)[self.alpha]

    @property
    def better_part(self) -> str:
        return "dense" if self.dense >= self.sparse else "sparse"

    @property
    def beats_rrf(self) -> bool:
        """Whether a tuned weight is significantly better than the default of an index."""
        return self.against_rrf.low > 0 and self.against_rrf.p_values["randomisation"] < LUCK

    def as_json(self) -> dict[str, Any]:
        return {
            "measure": self.measure,
            "queries": self.queries,
            "alpha": self.alpha,
            "value": self.value,
            "dense": self.dense,
            "sparse": self.sparse,
            "rrf": self.rrf,
            "curve": [point._asdict() for point in self.curve],
            "comparison": _test_json(self.better_part, self.comparison),
            "comparison_with_rrf": _test_json("rrf", self.against_rrf),
        }


def _test_json(against: str, test: Comparison) -> dict[str, Any]:
    return {
        "against": against,
        "cross_fitted": test.system,
        "difference": test.difference,
        "low": test.low,
        "high": test.high,
        "p": test.p_values,
        "record": test.record,
    }


def tune_alpha(
    lists: Lists, qrels: Qrels, rows_of: RowsOf, measure: str = "ndcg@10", alphas: Sequence[float] | None = None
) -> Tuning:
    """Try alphas on the lists of judged queries: the given ones, or a grid.

    The value at the chosen alpha is too optimistic, because the same queries chose it. So the comparisons with the
    better part and with reciprocal rank fusion are cross-fitted: each query uses the alpha that is best for the other
    folds.
    """
    if len(lists) < 2:
        raise LimbeckError(f"{len(lists)} query is too few to tune alpha; use at least 2, better hundreds")
    sweep = _Sweep(lists, qrels, rows_of, canonical_name(measure))
    results: dict[float, RankingResult] = {}
    grid = first_grid(lists) if alphas is None else sorted(set(alphas))
    for alpha in grid:
        require_alpha(alpha)
    for alpha in track(grid, "Trying alphas"):
        results[alpha] = sweep.hybrid(alpha)
    if alphas is None:
        closer = finer_grid(grid, _best(grid, _table(results, sweep.measure)))
        for alpha in track(closer, "Trying alphas near the best"):
            results[alpha] = sweep.hybrid(alpha)
    return _tuning(sweep, results)


def _tuning(sweep: _Sweep, results: dict[float, RankingResult]) -> Tuning:
    tried, name = sorted(results), sweep.measure
    table = _table(results, name)  # [alphas, queries]
    dense, sparse, rrf = sweep.part(0), sweep.part(1), sweep.rrf()
    hybrid = replace(dense, per_query={name: cross_fitted(tried, table)})
    curve = tuple(FusionPoint(alpha, float(mean)) for alpha, mean in zip(tried, table.mean(axis=1), strict=True))
    return Tuning(
        name,
        table.shape[1],
        curve,
        _best(tried, table),
        dense[name],
        sparse[name],
        rrf[name],
        compare_rankings(hybrid, dense if dense[name] >= sparse[name] else sparse, name),
        compare_rankings(hybrid, rrf, name),
    )


class _Sweep:
    """Measures rankings of the same queries. Documents are identified by row, so that no id is looked up twice."""

    def __init__(self, lists: Lists, qrels: Qrels, rows_of: RowsOf, measure: str) -> None:
        self.measure = measure
        self._lists = lists
        self._k = int(measure.partition("@")[2] or DEPTH)
        self._qrels = {query: _by_row(qrels[query], rows_of) for query in lists}

    def hybrid(self, alpha: float) -> RankingResult:
        return self._measured(lambda dense, sparse: fuse(dense, sparse, alpha, self._k).rows)

    def rrf(self) -> RankingResult:
        return self._measured(lambda dense, sparse: reciprocal_rank_fusion(dense, sparse, self._k).rows)

    def part(self, which: int) -> RankingResult:
        return self._measured(lambda *pair: pair[which][0][: self._k])

    def _measured(self, rank: Callable[[List, List], np.ndarray]) -> RankingResult:
        """Rank by position instead of score: on equal scores, documents keep the order of the search."""
        run: Run = {}
        for query, pair in self._lists.items():
            run[query] = {str(row): -float(place) for place, row in enumerate(rank(*pair).tolist())}
        return evaluate_run(run, self._qrels, [self.measure])


def _by_row(grades: Mapping[str, int], rows_of: RowsOf) -> dict[str, int]:
    """Judgements by row; judged documents that are not in the index are kept, because they count as missed."""
    rows = rows_of(list(grades)).tolist()
    return {
        str(row) if row >= 0 else f"not indexed: {document}": grade
        for row, (document, grade) in zip(rows, grades.items(), strict=True)
    }


def first_grid(lists: Lists) -> list[float]:
    """0, and 1, 2, 5 of each decade around the alpha at which both parts have the same spread for the median query."""
    spreads = [
        (float(np.ptp(dense[1])), float(np.ptp(sparse[1])))
        for dense, sparse in lists.values()
        if len(dense[1]) and len(sparse[1])
    ]
    ratios = [dense / sparse for dense, sparse in spreads if dense > 0 and sparse > 0]
    middle = math.floor(math.log10(float(np.median(ratios)))) if ratios else 0
    decades = range(middle - _DECADES, middle + _DECADES + 1)
    return [0.0, *(float(f"{step}e{decade}") for decade in decades for step in (1, 2, 5))]


def finer_grid(grid: Sequence[float], best: float) -> list[float]:
    """More alphas between the neighbours of the best, with two digits; one decade further if the best is at an end."""
    at = grid.index(best)
    low = grid[at - 1] if at else 0.0
    high = grid[at + 1] if at + 1 < len(grid) else 10 * best
    low = low or (best or high) / 10
    closer = {float(f"{alpha:.1e}") for alpha in np.geomspace(low, high, 2 * _STEPS + 1)}
    return sorted(closer - set(grid))


def cross_fitted(alphas: Sequence[float], table: np.ndarray) -> np.ndarray:
    """The value of each query with the alpha that is best for the other folds: [alphas, queries] -> [queries]."""
    count = table.shape[1]
    fold_of = np.random.default_rng(0).permutation(count) % min(FOLDS, count)
    values = np.empty(count)
    for fold in range(fold_of.max() + 1):
        here = fold_of == fold
        values[here] = table[alphas.index(_best(alphas, table[:, ~here])), here]
    return values


def _best(alphas: Sequence[float], table: np.ndarray) -> float:
    """The alpha with the highest mean; of several, the middle one, because the edge of a plateau is risky."""
    means = table.mean(axis=1)
    tied = np.flatnonzero(means >= means.max() - 1e-12)
    return alphas[int(tied[len(tied) // 2])]


def _table(results: Mapping[float, RankingResult], measure: str) -> np.ndarray:
    return np.stack([results[alpha].per_query[measure] for alpha in sorted(results)])
