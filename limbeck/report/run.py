"""The report of a run: one function per section, in the order of the page.

A section's function gets all files of the run and returns None if the run has nothing for it. After `sections` come
the analyses, from their stored results, then examples, recipe and versions.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from pydantic import BaseModel, ValidationError

from limbeck.errors import bad_input
from limbeck.files import read_json
from limbeck.report.analyses.stored import stored_sections
from limbeck.report.blocks import Block, Code, KeyValue, Section
from limbeck.report.compression import compression_sections
from limbeck.report.examples import examples
from limbeck.report.formatting import duration
from limbeck.report.html import Report
from limbeck.report.learning import learning_curves
from limbeck.report.results import comparison, quality_and_latency, result
from limbeck.report.run_files import REMEDY, Metrics, RunFiles, read_run
from limbeck.report.task_words import words_of


class AxisFacts(BaseModel):
    """A key of the recipe and its values in a sweep."""

    key: str
    values: list[str]


class SweepFacts(BaseModel):
    """What a sweep ran, from its metrics.json, or from its sweep.json if the command was not saved."""

    over: list[AxisFacts]
    tune: list[AxisFacts]
    seeds: int
    against: str
    command: str = ""


def recipe(run: RunFiles, sweep: SweepFacts | None = None) -> Section | None:
    """The resolved recipe; for a sweep also the values that it varied."""
    if not run.recipe.strip():
        return None
    code = Code(run.recipe.strip())
    if sweep is None:
        return Section("Recipe", [code], "The resolved recipe: run it to repeat this run.")
    axes = [("over", axis) for axis in sweep.over] + [("tuned on dev", axis) for axis in sweep.tune]
    facts = [(f"{how}: {axis.key}", ", ".join(axis.values)) for how, axis in axes]
    facts += [("seeds", str(sweep.seeds)), ("tested against", sweep.against)]
    command: list[Block] = [Code(sweep.command)] if sweep.command else []
    repeats = "The command runs this sweep again. " if sweep.command else ""
    explanation = f"{repeats}Each student changes the resolved recipe below in one value of every key."
    return Section("Recipe", [*command, KeyValue(facts), code], explanation)


def _sweep(run_dir: Path) -> SweepFacts | None:
    """The sweep that a directory describes; None for a run."""
    place = run_dir / "metrics.json"
    told = read_json(place, REMEDY).get("sweep")
    if told is None and (run_dir / "sweep.json").exists():
        place = run_dir / "sweep.json"
        told = read_json(place, REMEDY)
    try:
        return SweepFacts.model_validate(told) if told is not None else None
    except ValidationError as error:
        raise bad_input(place, "does not describe a sweep", REMEDY) from error


def versions(run: RunFiles) -> Section | None:
    """Time, versions and machine of the run."""
    items = [("wall time", duration(run.metrics.seconds))] if run.metrics.seconds is not None else []
    items += sorted(run.metrics.versions.items())
    return Section("Versions", [KeyValue(items)]) if items else None


sections: list[Callable[[RunFiles], Section | None]] = [
    result,
    comparison,
    quality_and_latency,
    learning_curves,
]


def subtitle(metrics: Metrics) -> str:
    """The data and the task in one line."""
    data = metrics.data
    split_sizes = [
        f"{count:,} {split}"
        for split, count in (("train", data.queries_train), ("dev", data.queries_dev), ("test", data.queries_test))
        if count is not None
    ]
    words = words_of(metrics)
    parts = [
        data.name,
        words.title,
        f"{' / '.join(split_sizes)} {words.examples}" if split_sizes else "",
        f"{data.documents:,} documents" if data.documents is not None else "",
    ]
    return " · ".join(part for part in parts if part)


def run_report(run_dir: str | Path) -> Path:
    """Write `report.html` into a run directory, from the files of the run."""
    run = read_run(run_dir)
    built = sections if run.metrics.compression is None else compression_sections
    first = [section for build in built if (section := build(run)) is not None]
    last = [examples(run), recipe(run, _sweep(Path(run_dir))), versions(run)]
    made = [*first, *stored_sections(Path(run_dir), run.colours), *(section for section in last if section is not None)]
    report = Report(run.metrics.title, subtitle(run.metrics), made, footer="Made by limbeck.")
    return report.write(Path(run_dir) / "report.html")
