"""The results of one system on judged queries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Self

import numpy as np

from limbeck.evaluation.measure_names import canonical_name
from limbeck.evaluation.significance import Comparison, compare_rankings
from limbeck.evaluation.system_result import SystemResult


@dataclass(frozen=True)
class RankingResult(SystemResult):
    """The measures of one run, per query."""

    query_ids: tuple[str, ...]  # the judged queries, sorted
    per_query: dict[str, np.ndarray]  # measure name -> [queries], aligned with query_ids
    unranked: int  # judged queries that the run misses
    without_relevant: int  # judged queries without a relevant document
    besides: dict[str, dict[str, float]] = field(default_factory=dict)  # values of more queries: name -> query -> value

    @property
    def means(self) -> dict[str, float]:
        """Measure name -> mean over the judged queries."""
        return {name: float(values.mean()) for name, values in self.per_query.items()}

    def __len__(self) -> int:
        return len(self.query_ids)

    def __getitem__(self, name: str) -> float:
        return float(self.per_query[canonical_name(name)].mean())

    def compare(self, baseline: RankingResult, measure: str) -> Comparison:
        return compare_rankings(self, baseline, measure)

    @classmethod
    def over_seeds(cls, results: Sequence[Self]) -> Self:
        """The average of several results, per query."""
        first = results[0]
        means = {key: np.mean([one.per_query[key] for one in results], axis=0) for key in first.per_query}
        besides = {
            key: {query: float(np.mean([one.besides[key][query] for one in results])) for query in values}
            for key, values in first.besides.items()
            if all(key in one.besides for one in results)  # results of earlier versions do not have it
        }
        return replace(first, per_query=means, besides=besides)

    def chance(self, measure: str) -> float:
        return 0.0

    def by_query(self, measure: str) -> dict[str, float]:
        if measure in self.besides:
            return self.besides[measure]
        found = self.per_query.get(measure)
        return {} if found is None else dict(zip(self.query_ids, found.tolist(), strict=True))

    def as_json(self) -> dict[str, Any]:
        return asdict(self) | {"per_query": {name: values.tolist() for name, values in self.per_query.items()}}

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> Self:
        values = {name: np.array(listed) for name, listed in record["per_query"].items()}
        return cls(**{**record, "per_query": values, "query_ids": tuple(record["query_ids"])})
