"""The words of the report that differ between tasks, and the cost that quality is plotted against."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from limbeck.report.run_files import Metrics, ModelRow


@dataclass(frozen=True)
class CostAxis:
    """The cost of a model, as an axis of a plot."""

    of: Callable[[ModelRow], float | None]
    title: str
    noun: str
    explanation: str


@dataclass(frozen=True)
class TaskWords:
    """The words of the report for one task."""

    title: str
    examples: str  # what the examples are called
    test: str  # how differences are tested
    cost: CostAxis
    above_chance: str = ""  # added to a share of the teacher's quality if it is measured from chance


LATENCY = CostAxis(
    lambda row: row.ms_per_query,
    "milliseconds per query",
    "latency",
    "Better is up and to the left; the time axis is logarithmic.",
)
THROUGHPUT = CostAxis(
    lambda row: row.pairs_per_second,
    "pairs per second",
    "throughput",
    "Better is up and to the right; texts are encoded ahead where possible; the axis is logarithmic.",
)


def _ranking(title: str) -> TaskWords:
    return TaskWords(title, "queries", "randomisation tests over the test queries", LATENCY)


WORDS = {
    None: _ranking(""),  # a run without a task
    "rerank": _ranking("re-ranking"),
    "retrieve": _ranking("retrieval over the whole corpus"),
    "both": _ranking("re-ranking and retrieval"),
    "pairs": TaskWords("pair scoring", "pairs", "bootstrap over the test pairs", THROUGHPUT, " above chance"),
}


def words_of(metrics: Metrics) -> TaskWords:
    return WORDS[metrics.task]
