"""Measurements of matchers: quality, agreement with a teacher, significance, cost."""

from __future__ import annotations

from typing import TYPE_CHECKING

from limbeck.lazy import lazy_names

if TYPE_CHECKING:
    from limbeck.evaluation.agreement import Agreement
    from limbeck.evaluation.candidates import candidate_run, first_of, with_judged, with_random
    from limbeck.evaluation.gate import Gate, failures, parse_gate
    from limbeck.evaluation.latency import Latency, folder_bytes, measure_latency, parameter_count
    from limbeck.evaluation.measure_names import canonical_name, measure_name, parse_measure
    from limbeck.evaluation.measures import evaluate_run
    from limbeck.evaluation.pairs import evaluate_pairs
    from limbeck.evaluation.rank import rerank, retrieve
    from limbeck.evaluation.ranking_result import RankingResult
    from limbeck.evaluation.significance import Comparison, compare_pairs, compare_rankings, holm

__all__ = [
    "Agreement",
    "Comparison",
    "Gate",
    "Latency",
    "RankingResult",
    "canonical_name",
    "candidate_run",
    "compare_pairs",
    "compare_rankings",
    "evaluate_pairs",
    "evaluate_run",
    "failures",
    "first_of",
    "folder_bytes",
    "holm",
    "measure_latency",
    "measure_name",
    "parameter_count",
    "parse_gate",
    "parse_measure",
    "rerank",
    "retrieve",
    "with_judged",
    "with_random",
]

_MODULES = {
    "agreement": ("Agreement",),
    "candidates": ("candidate_run", "first_of", "with_judged", "with_random"),
    "gate": ("Gate", "failures", "parse_gate"),
    "latency": ("Latency", "folder_bytes", "measure_latency", "parameter_count"),
    "measure_names": ("canonical_name", "measure_name", "parse_measure"),
    "measures": ("evaluate_run",),
    "pairs": ("evaluate_pairs",),
    "rank": ("rerank", "retrieve"),
    "ranking_result": ("RankingResult",),
    "significance": ("Comparison", "compare_pairs", "compare_rankings", "holm"),
}

__getattr__, __dir__ = lazy_names(
    __name__, {name: f"{__name__}.{module}" for module, names in _MODULES.items() for name in names}
)
