"""Measurements on disk: each is saved when it is made, so that a killed run can continue."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from limbeck.errors import LimbeckError
from limbeck.evaluation.system_result import SystemResult
from limbeck.runs.results import Measured, ResultRow
from limbeck.sealed import read_if_whole, read_sealed, write_sealed

RESULT = "result.json"


def once(
    place: Path, measure: Callable[[], Measured], result_type: type[SystemResult], of: str | None = None
) -> Measured:
    """The result of `measure`, from `place` if it is there; `of` identifies the weights that it must belong to."""
    kept = read_if_whole(place / RESULT)
    if kept is None or kept.get("of") != of:
        save_measured(measure(), place, of)
    return read_measured(place, result_type)


def save_measured(measured: Measured, place: Path, of: str | None = None) -> None:
    """A measurement as a file: the row, its per-query values, and their ranking."""
    place.mkdir(parents=True, exist_ok=True)
    record: dict[str, Any] = {"row": asdict(measured.row), "result": measured.result.as_json(), "run": measured.run}
    record |= {} if measured.distances is None else {"distances": measured.distances}
    write_sealed(place / RESULT, record if of is None else record | {"of": of})


def read_measured(place: Path, result_type: type[SystemResult]) -> Measured:
    try:
        found = read_sealed(place / RESULT)
        result = result_type.from_json(found["result"])
        return Measured(ResultRow(**found["row"]), result, found["run"], found.get("distances"), _student_in(place))
    except (TypeError, KeyError, ValueError) as error:
        raise LimbeckError(f"{place}: its result is damaged; remove that directory and run again") from error


def _student_in(place: Path) -> Path | None:
    """The student of a run of a sweep, where its weights were kept."""
    folder = place / "student"
    return folder if folder.is_dir() else None
