"""What to do next: how to use the student, and what would help if it is not what was asked for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from limbeck.report.formatting import share, three_digits
from limbeck.runs.compress.candidates import FEWEST_LABELS
from limbeck.runs.compress.front import Offer
from limbeck.runs.compress.limits import Limits
from limbeck.runs.compress.verdict import Level, Verdict
from limbeck.search.manifest import is_an_index

FEW_QUERIES = 1000


@dataclass(frozen=True)
class Use:
    """How the recommended student is used."""

    folder: Path  # of the run
    source: str  # the data
    runtime: str
    searches: bool  # otherwise it re-ranks
    keeps_documents: bool  # whether the teacher's document vectors serve it
    train_queries: int
    labelled: int  # training queries with labels
    vectors: str | None = None  # the user's document vectors
    length: int | None = None  # tokens that the teacher reads, if limited


def advice(
    chosen: Offer, right: bool, use: Use, verdict: Verdict, limits: Limits, notes: Mapping[str, str]
) -> list[str]:
    """Lines for the terminal and the report; `right` says whether the student is what was asked for."""
    lines = []
    if not right:
        kept = f"keeps {share(chosen.kept)}" if chosen.kept is not None else f"reaches {chosen.quality:.3f}"
        size = f" and {chosen.bytes:,.0f} bytes per document" if chosen.bytes is not None else ""
        nearest = f"{chosen.name} comes nearest: it {kept} at {three_digits(chosen.ms)} ms per query{size}"
        lines.append(f"No student meets: {limits}. {nearest}.")
        lines += _what_helps(chosen, use, limits, notes)
    if verdict.level == Level.REGRESSION:
        lines.append(f"Take {verdict.baseline} instead: {verdict.reason}.")
    return [*lines, _how_to_use(use)]


def _how_to_use(use: Use) -> str:
    student, option = use.folder / "student", f" --runtime {use.runtime}" if use.runtime != "torch" else ""
    if not use.searches:
        return f"Measure it as a re-ranker: limbeck evaluate {student} {use.source} --task rerank{option}"
    search = f"limbeck search {{}} --encoder {student}{option} QUERY"
    if use.vectors is not None:
        index = use.vectors if is_an_index(use.vectors) else "INDEX"
        return f"Search your index with it: {search.format(index)}"
    if use.keeps_documents and use.length is None:
        return f"Search the teacher's index with it: {search.format('INDEX')}"
    return f"Index with it: limbeck index {student} {use.source} --out INDEX"


def _what_helps(chosen: Offer, use: Use, limits: Limits, notes: Mapping[str, str]) -> list[str]:
    """Remedies, the likeliest first."""
    lines = []
    if any("no time left" in note for note in notes.values()):
        lines.append("Some students had no time left: run the same command again with more --minutes; it goes on.")
    if use.train_queries < FEW_QUERIES:
        lines.append(f"There are {use.train_queries:,} training queries: more of them help, without labels too.")
    if use.searches and use.labelled < FEWEST_LABELS:
        lines.append(f"Labels of {FEWEST_LABELS} training queries or more help: students then learn from them, too.")
    if limits.ms is not None and chosen.ms > limits.ms:
        lines.append("Queries take less time on more threads: give --threads, if you serve with as many.")
    short = limits.needed is not None and (chosen.kept or 0.0) < limits.needed
    if short and limits.affords(chosen.ms, chosen.bytes):
        lines.append(f"A deeper student keeps more: raise student.layers in a recipe of {use.folder / 'students'}.")
    if limits.bytes is not None and chosen.bytes is not None and chosen.bytes > limits.bytes:
        lines.append("An index of the kind sq8 keeps a byte of each number instead of 4: limbeck index --kind sq8.")
    return lines
