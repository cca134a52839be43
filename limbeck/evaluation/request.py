"""The request and the result of `limbeck evaluate`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from limbeck.evaluation.significance import Comparison

EXAMPLES = {"rerank": "queries", "retrieve": "queries", "pairs": "pairs"}  # the examples of each task
TASKS = list(EXAMPLES)
PAIRS = "pairs"
TOKENS = "tokens"  # candidates from an approximate index over token vectors


@dataclass(frozen=True)
class Request:
    """What to measure; the fields are the command's options."""

    model: str
    data: str
    task: str | None = None
    split: str = "test"
    against: str | None = None
    candidates: str | None = None  # bm25 by default, for re-ranking
    depth: int = 100
    add_judged: bool = False
    measures: Sequence[str] | None = None
    relevance_level: int = 1
    limit: int | None = None
    store: Path | None = None
    run: Path | None = None
    also: Sequence[str] = ()  # measures in addition to the default or chosen ones
    mode: str | None = None  # how to search an index, with the next two
    fusion: str | None = None
    alpha: float | None = None
    # For the model only, not for the one to compare with: maximum tokens of each text, and the head.
    lengths: tuple[int, int] | None = None
    head: str | None = None
    # How to search the second index; by default in the same way as the first.
    against_mode: str | None = None
    against_fusion: str | None = None
    against_alpha: float | None = None
    seed: int = 0  # for drawing the queries or pairs of a `limit`

    def searching(self, rival: bool = False) -> dict[str, Any]:
        """How to search the index of the model, or of the one to compare with."""
        theirs = (self.against_mode, self.against_fusion, self.against_alpha)
        own = (self.mode, self.fusion, self.alpha)
        chosen = theirs if rival and any(value is not None for value in theirs) else own
        return dict(zip(("mode", "fusion", "alpha"), chosen, strict=True))

    @property
    def reranks(self) -> bool:
        """Whether some option only applies to re-ranking."""
        return self.add_judged or self.candidates not in (None, TOKENS)


@dataclass(frozen=True)
class Evaluation:
    """The result: what was measured and how, measures, cost, and the comparison, if any."""

    task: str
    split: str
    count: int  # queries or pairs
    measures: dict[str, float]
    ms_per_query: float | None = None
    pairs_per_second: float | None = None
    size_mb: float | None = None
    bytes_per_passage: float | None = None
    comparisons: tuple[Comparison, ...] = ()
    model: str = ""
    data: str = ""
    against: str | None = None
    available: int | None = None  # queries or pairs in the split; `count` of them were drawn
    settings: dict[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()  # how it was measured, one line each

    def as_json(self) -> dict[str, Any]:
        comparisons = [
            {
                "measure": found.measure,
                "difference": found.difference,
                "low": found.low,
                "high": found.high,
                "p": found.p_values,
                "record": found.record,
            }
            for found in self.comparisons
        ]
        first = {name: getattr(self, name) for name in ("model", "data", "against")}
        own = {name: value for name, value in vars(self).items() if name != "comparisons" and name not in first}
        return {**first, **own, "notes": list(self.notes), "comparisons": comparisons}

    def __str__(self) -> str:
        noun = EXAMPLES.get(self.task, "queries")
        width = max(map(len, self.measures))
        some = self.available is not None and self.available > self.count
        drawn = f" of {self.available:,} {noun}, drawn with seed {self.settings.get('seed')}" if some else f" {noun}"
        lines = [f"{self.task} on {self.split}, {self.count:,}{drawn}"]
        lines += [f"  {note}" for note in self.notes]
        lines += [f"  {name:<{width}}  {value:.4f}" for name, value in self.measures.items()]
        costs = [
            f"{self.ms_per_query:,.1f} ms per query" if self.ms_per_query is not None else "",
            f"{self.pairs_per_second:,.0f} pairs per second" if self.pairs_per_second is not None else "",
            f"{self.size_mb:,.0f} MB" if self.size_mb is not None else "",
            f"{self.bytes_per_passage:,.0f} bytes per passage" if self.bytes_per_passage is not None else "",
        ]
        lines += ["  " + ", ".join(filter(None, costs))] if any(costs) else []
        return "\n".join([*lines, *(f"  {found}" for found in self.comparisons)])
