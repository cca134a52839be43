"""The report of a run: one function a section, in the order in which a reader meets them.

A section's function gets all files of the run, and returns None where the run has nothing to say about it. Between
those in `sections` and those in `closing` stand the analyses, from the results that the run left.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from limbeck.report.analyses.stored import stored_sections
from limbeck.report.blocks import Code, KeyValue, Section
from limbeck.report.examples import examples
from limbeck.report.html import Report
from limbeck.report.learning import learning_curves
from limbeck.report.results import comparison, quality_and_latency, result
from limbeck.report.run_files import Metrics, RunFiles, read_run
from limbeck.report.words import duration

TASKS = {
    "rerank": "re-ranking",
    "retrieve": "retrieval over the whole corpus",
    "both": "re-ranking and retrieval",
    "pairs": "pair scoring",
}


def recipe(run: RunFiles) -> Section | None:
    """The recipe as resolved."""
    if not run.recipe.strip():
        return None
    return Section("Recipe", [Code(run.recipe.strip())], "As resolved: running it again repeats this run.")


def versions(run: RunFiles) -> Section | None:
    """What it took, and with what."""
    items = [("wall time", duration(run.metrics.seconds))] if run.metrics.seconds is not None else []
    items += sorted(run.metrics.versions.items())
    return Section("Versions", [KeyValue(items)]) if items else None


sections: list[Callable[[RunFiles], Section | None]] = [
    result,
    comparison,
    quality_and_latency,
    learning_curves,
]
closing: list[Callable[[RunFiles], Section | None]] = [examples, recipe, versions]


def subtitle(metrics: Metrics) -> str:
    """The data and the task in one line."""
    data = metrics.data
    split_sizes = [
        f"{count:,} {split}"
        for split, count in (("train", data.queries_train), ("dev", data.queries_dev), ("test", data.queries_test))
        if count is not None
    ]
    noun = "pairs" if metrics.task == "pairs" else "queries"
    parts = [
        data.name,
        TASKS[metrics.task] if metrics.task else "",
        f"{' / '.join(split_sizes)} {noun}" if split_sizes else "",
        f"{data.documents:,} documents" if data.documents is not None else "",
    ]
    return " · ".join(part for part in parts if part)


def run_report(run_dir: str | Path) -> Path:
    """Write `report.html` into a run directory, from what the run left there."""
    run = read_run(run_dir)
    first = [section for build in sections if (section := build(run)) is not None]
    last = [section for build in closing if (section := build(run)) is not None]
    made = [*first, *stored_sections(Path(run_dir), run.colours), *last]
    report = Report(run.metrics.title, subtitle(run.metrics), made, footer="Made by limbeck.")
    return report.write(Path(run_dir) / "report.html")
