"""Methods to make new queries: `model`, `perturb` and `spans` write some for each text; `sample` draws other queries.

Random numbers depend only on the text and the number of the new query (`draws.py`), so the same seed gives the same
queries, even after a kill or with another batch size.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from limbeck.data.tables import TextRecord
from limbeck.errors import LimbeckError, did_you_mean

WAYS = ["model", "perturb", "spans", "sample"]
_OWN = {"noise": "model", "mask": "model", "max_length": "model", "drop": "perturb", "swap": "perturb"}


class Way(Protocol):
    """Writes new queries for texts of a table."""

    @property
    def batch_size(self) -> int: ...

    def identity(self) -> dict[str, Any]:
        """Everything except the texts that changes the result."""

    def write(self, rows: Sequence[TextRecord]) -> list[list[str]]:
        """The new queries of each text, given as (id, title, text); a query may be empty if the method found none."""


@dataclass(frozen=True)
class Settings:
    """The options of `limbeck generate`; None means the method's default. Options of other methods must be None."""

    how: str
    per_query: int = 2
    seed: int = 0
    noise: float | None = None
    mask: float | None = None
    max_length: int | None = None
    drop: float | None = None
    swap: float | None = None

    def __post_init__(self) -> None:
        if self.how not in WAYS:
            raise LimbeckError(f"unknown --how {self.how!r}; {did_you_mean(self.how, WAYS)}")
        if self.per_query < 1:
            raise LimbeckError(f"--per-query {self.per_query}: nothing would be written; give 1 or more")
        for name, way in _OWN.items():
            value = getattr(self, name)
            if value is None:
                continue
            if self.how != way:
                raise LimbeckError(f"--{name.replace('_', '-')}: requires --how {way}; leave it out")
            if name in ("mask", "drop", "swap") and not 0 <= value < 1:
                raise LimbeckError(f"--{name} {value}: is not a share; give 0 or more, and less than 1")
        if self.noise is not None and not 0 <= self.noise < math.inf:
            raise LimbeckError(f"--noise {self.noise}: is not a standard deviation; give 0 or more")
        if self.max_length is not None and self.max_length < 1:
            raise LimbeckError(f"--max-length {self.max_length}: nothing could be written; give 1 or more")

    def given(self) -> dict[str, Any]:
        """The settings that were given, which decide the queries."""
        return {name: value for name, value in asdict(self).items() if value is not None}
