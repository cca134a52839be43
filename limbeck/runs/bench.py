"""Measures all models on a task's test examples in the same way."""

from __future__ import annotations

from abc import ABC, abstractmethod

from limbeck.matchers import Matcher
from limbeck.runs.results import Measured, RowKind


class Bench(ABC):
    """Quality, speed and size of a model: one row of the table."""

    @abstractmethod
    def model(self, name: str, kind: RowKind, matcher: Matcher, objective: str | None = None) -> Measured: ...
