"""The results of one system on the test examples of any task."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Self

from limbeck.evaluation.significance import Comparison


class SystemResult(ABC):
    """Measured values in enough detail to average them over seeds, compare them and save them."""

    @property
    @abstractmethod
    def means(self) -> dict[str, float]:
        """Measure name -> mean over examples and seeds."""

    @abstractmethod
    def __len__(self) -> int:
        """The number of judged examples."""

    @abstractmethod
    def compare(self, baseline: Self, measure: str) -> Comparison:
        """The difference from another system on the same examples, with its significance."""

    @classmethod
    @abstractmethod
    def over_seeds(cls, results: Sequence[Self]) -> Self:
        """One result for students that differ only in their seed."""

    @abstractmethod
    def chance(self, measure: str) -> float | None:
        """The value of a model that knows nothing, from which "kept" is measured. None if shares mean nothing."""

    @abstractmethod
    def by_query(self, measure: str) -> dict[str, float]:
        """Query id -> value; empty if a measure is computed over all examples together, such as AUC."""

    @abstractmethod
    def as_json(self) -> dict[str, Any]: ...

    @classmethod
    @abstractmethod
    def from_json(cls, record: Mapping[str, Any]) -> Self:
        """Read what `as_json` wrote; KeyError, TypeError or ValueError if it is something else."""
