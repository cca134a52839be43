"""What `limbeck evaluate` is asked for, and what it answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from limbeck.evaluation.significance import Comparison

EXAMPLES = {"rerank": "queries", "retrieve": "queries", "pairs": "pairs"}  # what a task is measured on
TASKS = list(EXAMPLES)
PAIRS = "pairs"
TOKENS = "tokens"  # as candidates: what an approximate index over token vectors finds


@dataclass(frozen=True)
class Request:
    """What is to be measured; the fields are the command's options."""

    model: str
    data: str
    task: str | None = None
    split: str = "test"
    against: str | None = None
    candidates: str | None = None  # bm25 where something is re-ranked
    depth: int = 100
    add_judged: bool = False
    measures: Sequence[str] | None = None
    relevance_level: int = 1
    limit: int | None = None
    store: Path | None = None
    run: Path | None = None
    also: Sequence[str] = ()  # measures in addition to the default or chosen ones
    mode: str | None = None  # of searching an index, as the next two
    fusion: str | None = None
    alpha: float | None = None
    # Of the model alone, not of the one that it is held against: tokens that it reads of each text, and who computes.
    lengths: tuple[int, int] | None = None
    head: str | None = None
    # Of searching the index that it is held against; without any of them, as the three of its own.
    against_mode: str | None = None
    against_fusion: str | None = None
    against_alpha: float | None = None
    seed: int = 0  # draws the queries or pairs of a `limit`

    def searching(self, rival: bool = False) -> dict[str, Any]:
        """How an index is searched: the model's, or the one that it is held against."""
        theirs = (self.against_mode, self.against_fusion, self.against_alpha)
        own = (self.mode, self.fusion, self.alpha)
        chosen = theirs if rival and any(value is not None for value in theirs) else own
        return dict(zip(("mode", "fusion", "alpha"), chosen, strict=True))

    @property
    def reranks(self) -> bool:
        """Whether something is asked for that only re-ranking has."""
        return self.add_judged or self.candidates not in (None, TOKENS)


@dataclass(frozen=True)
class Evaluation:
    """The result: what was measured and how, measures, cost, and the comparison if there was one."""

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
    available: int | None = None  # queries or pairs that the split has; `count` of them were drawn
    settings: dict[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()  # how it was measured, a line each

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
