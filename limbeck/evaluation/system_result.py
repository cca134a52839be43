"""The results of one system on the test examples of any task."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Self

from limbeck.evaluation.significance import Comparison


class SystemResult(ABC):
    """Measured values, in enough detail to average them over seeds, compare them and keep them in a file."""

    @property
    @abstractmethod
    def means(self) -> dict[str, float]:
        """Measure name -> mean over examples and seeds."""

    @abstractmethod
    def __len__(self) -> int:
        """How many examples were judged."""

    @abstractmethod
    def compare(self, baseline: Self, measure: str) -> Comparison:
        """The difference to another system on the same examples, with its significance."""

    @classmethod
    @abstractmethod
    def over_seeds(cls, results: Sequence[Self]) -> Self:
        """One result for students that differ in their seed alone."""

    @abstractmethod
    def chance(self, measure: str) -> float | None:
        """What a model gets that knows nothing: "kept" counts from there. None where shares mean nothing."""

    @abstractmethod
    def by_query(self, measure: str) -> dict[str, float]:
        """Query id -> value; empty where a measure is of all examples together, as an AUC is."""

    @abstractmethod
    def as_json(self) -> dict[str, Any]: ...

    @classmethod
    @abstractmethod
    def from_json(cls, record: Mapping[str, Any]) -> Self:
        """What `as_json` wrote; KeyError, TypeError or ValueError where it is something else."""
