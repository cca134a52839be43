"""Analyses in a run directory: `analyses/NAME.json` holds a result, from which the report makes its section.

What could not be analysed is there too, as `{"missing": "why"}`, so that a reader who looks for it finds the reason.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import ValidationError

from limbeck.errors import LimbeckError, bad_input
from limbeck.files import read_json, write_json
from limbeck.report.analyses.base import Result
from limbeck.report.analyses.disagreements import Disagreements, disagreements_section
from limbeck.report.analyses.generalisation import Generalisation, generalisation_section
from limbeck.report.analyses.normalised_margins import NormalisedMargins, normalised_margins_section
from limbeck.report.analyses.numerical_rank import NumericalRank, numerical_rank_section
from limbeck.report.analyses.score_distributions import ScoreDistributions, score_distributions_section
from limbeck.report.analyses.sensitivity import Sensitivity, sensitivity_section
from limbeck.report.analyses.top_lists import TopLists, top_lists_section
from limbeck.report.analyses.wins_and_losses import WinsAndLosses, wins_and_losses_section
from limbeck.report.blocks import Section, Text
from limbeck.report.colours import Colours

FOLDER = "analyses"
NOT_KEPT = (
    "an earlier version measured this and kept no values of single training queries; remove metrics.json, references/ "
    "and every result.json in students/, and run the same command again: what is trained stays"
)


class Kind(NamedTuple):
    """How a stored result is read and shown."""

    title: str
    result: type[Result]
    section: Callable[..., Section]
    coloured: bool = False  # its pictures have a colour for each model
    dropped: str = ""  # what only results of an earlier version have, which can no longer be shown


# In the order of the report: what was found, then where it comes from, then the texts themselves.
KINDS: dict[str, Kind] = {
    "sensitivity": Kind("Sensitivity", Sensitivity, sensitivity_section, coloured=True),
    "generalisation": Kind("Capacity or generalisation", Generalisation, generalisation_section, True, "tolerance"),
    "rank": Kind("Rank of the teacher's scores", NumericalRank, numerical_rank_section),
    "scores": Kind("Scores", ScoreDistributions, score_distributions_section),
    "snapshots": Kind("Scores while training", ScoreDistributions, score_distributions_section),
    "margins": Kind("Margins", NormalisedMargins, normalised_margins_section, coloured=True),
    "wins": Kind("Wins and losses", WinsAndLosses, wins_and_losses_section),
    "disagreements": Kind("Disagreements", Disagreements, disagreements_section),
    "top_lists": Kind("Top lists", TopLists, top_lists_section),
}


def forget(run_dir: Path, name: str) -> None:
    """Drop a result, if there is one."""
    (run_dir / FOLDER / f"{name}.json").unlink(missing_ok=True)


def store(run_dir: Path, name: str, compute: Callable[[], Result], strict: bool = False) -> None:
    """Compute an analysis and keep its result; or the reason why there is none, unless it is `strict`."""
    try:
        _keep(run_dir, name, compute().model_dump(mode="json"))
    except LimbeckError as error:
        if strict:
            raise
        leave_out(run_dir, name, str(error))


def leave_out(run_dir: Path, name: str, reason: str) -> None:
    """Keep the reason why there is no such result."""
    _keep(run_dir, name, {"missing": reason})


def _keep(run_dir: Path, name: str, found: dict[str, Any]) -> None:
    (run_dir / FOLDER).mkdir(exist_ok=True)
    write_json(run_dir / FOLDER / f"{name}.json", found)


def stored_sections(run_dir: Path, colours: Colours | None = None) -> list[Section]:
    """The sections of all stored analyses, in the report's order."""
    sections = []
    for name, kind in KINDS.items():
        path = run_dir / FOLDER / f"{name}.json"
        if not path.exists():
            continue
        found = read_json(path)
        if isinstance(found, dict) and set(found) == {"missing"}:
            sections.append(Section(kind.title, [Text(f"Left out: {found['missing']}.")]))
            continue
        if isinstance(found, dict) and kind.dropped in found:
            sections.append(Section(kind.title, [Text(f"Left out: {NOT_KEPT}.")]))
            continue
        try:
            result = kind.result.model_validate(found)
            section = kind.section(result, colours) if kind.coloured else kind.section(result)
        except ValidationError as error:
            problem = f"is not the result of an analysis ({error.errors()[0]['msg'].lower()})"
            raise bad_input(path, problem, "remove it and run `limbeck report --add` again") from error
        sections.append(Section(kind.title, section.blocks, section.explanation) if name == "snapshots" else section)
    return sections
