"""How closely a student follows its teacher; this needs no judgements."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from scipy import stats

from limbeck.data.dataset import Run, ranked
from limbeck.errors import LimbeckError


@dataclass(frozen=True)
class Agreement:
    """Values per query; NaN if the teacher's list is not informative. Means are over the other queries.

    `overlap` is the share of the teacher's top k in the student's top k; NaN if the list has at most k documents,
    because then any order would score 1. `kendall` (tau-b) and `spearman` correlate the scores. All are NaN if the
    teacher gives every document the same score, and 0 if the student does.
    """

    k: int
    query_ids: tuple[str, ...]  # sorted
    overlap: np.ndarray  # [queries]
    kendall: np.ndarray  # [queries]
    spearman: np.ndarray  # [queries]

    @property
    def means(self) -> dict[str, float]:
        """Name -> mean over the informative queries; NaN if there are none."""
        named = {f"overlap@{self.k}": self.overlap, "kendall": self.kendall, "spearman": self.spearman}
        return {name: _mean(values) for name, values in named.items()}


def agreement(student: Run, teacher: Run, k: int = 10) -> Agreement:
    """Compare the student with the teacher on the lists that the teacher scored.

    Documents that only the student scored are left out; documents that only the teacher scored are an error.
    """
    if not teacher:
        raise LimbeckError("the teacher scored no query; give it candidates to score")
    if k < 1:
        raise LimbeckError(f"the overlap of the top {k} is not defined; use k of 1 or more")
    query_ids = tuple(sorted(teacher))
    rows = [_compare(query, student.get(query, {}), teacher[query], k) for query in query_ids]
    overlap, kendall, spearman = np.array(rows).T
    return Agreement(k, query_ids, overlap, kendall, spearman)


def _compare(query: str, student: Mapping[str, float], teacher: Mapping[str, float], k: int) -> list[float]:
    missing = next((document for document in teacher if document not in student), None)
    if missing is not None:
        raise LimbeckError(f"query {query!r}: the student did not score {missing!r}; score the teacher's lists")
    own = {document: student[document] for document in teacher}
    wanted, found = np.array(list(teacher.values()), float), np.array(list(own.values()), float)
    if np.isnan(wanted).any() or np.isnan(found).any():
        raise LimbeckError(f"query {query!r}: a score is not a number; score it again")
    if len(teacher) < 2 or np.ptp(wanted) == 0:
        return [np.nan, np.nan, np.nan]
    shared = {*ranked(own)[:k]} & {*ranked(teacher)[:k]} if np.ptp(found) else set()
    overlap = len(shared) / k if len(teacher) > k else np.nan
    if np.ptp(found) == 0:
        return [overlap, 0.0, 0.0]
    return [overlap, stats.kendalltau(wanted, found).statistic, stats.spearmanr(wanted, found).statistic]


def _mean(values: np.ndarray) -> float:
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else float("nan")
