"""Measurements on disk: each is kept as it is made, so that a run that is killed while measuring goes on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from limbeck.errors import LimbeckError
from limbeck.evaluation import RankingResult
from limbeck.evaluation.pair_result import PairResult
from limbeck.runs.results import Measured, ResultRow
from limbeck.sealed import read_if_whole, read_sealed, write_sealed

RESULT = "result.json"


def once(place: Path, measure: Callable[[], Measured], of: str | None = None) -> Measured:
    """What `measure` finds, from `place` if it was found before; `of` says of which weights it has to be."""
    kept = read_if_whole(place / RESULT)
    if kept is None or kept.get("of") != of:
        save_measured(measure(), place, of)
    return read_measured(place)


def save_measured(measured: Measured, place: Path, of: str | None = None) -> None:
    """A measurement as a file: the row, its per-query values, and the ranking they come from."""
    place.mkdir(parents=True, exist_ok=True)
    found = measured.result
    if isinstance(found, PairResult):
        result: dict[str, Any] = {"measures": found.measures}
        result |= {"labels": found.labels.tolist(), "scores": found.scores[0].tolist()}
    else:
        result = asdict(found) | {"per_query": {name: values.tolist() for name, values in found.per_query.items()}}
    record = {"row": asdict(measured.row), "result": result, "run": measured.run}
    write_sealed(place / RESULT, record if of is None else record | {"of": of})


def read_measured(place: Path) -> Measured:
    try:
        found = read_sealed(place / RESULT)
        if "scores" in found["result"]:
            pairs = {name: np.array(found["result"][name]) for name in ("labels", "scores")}
            result = PairResult(tuple(found["result"]["measures"]), pairs["labels"], (pairs["scores"],))
            return Measured(ResultRow(**found["row"]), result, {})
        values = {name: np.array(listed) for name, listed in found["result"]["per_query"].items()}
        ranking = found["result"] | {"per_query": values, "query_ids": tuple(found["result"]["query_ids"])}
        return Measured(ResultRow(**found["row"]), RankingResult(**ranking), found["run"])
    except (TypeError, KeyError, ValueError) as error:
        raise LimbeckError(f"{place}: its result is damaged; remove that directory and run again") from error
