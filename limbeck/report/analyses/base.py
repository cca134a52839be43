"""Shared by all analyses: a result that survives a round trip through JSON, and checks of the input."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np
from pydantic import BaseModel, ConfigDict

from limbeck.data.dataset import Candidates, Qrels, positives
from limbeck.errors import LimbeckError
from limbeck.progress import track


class Result(BaseModel):
    """The result of an analysis. `model_validate_json(result.model_dump_json())` gives an equal result."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class JudgedList(NamedTuple):
    """One query's scored documents, some of them relevant and some not."""

    query: str
    scores: np.ndarray  # [documents]
    relevant: np.ndarray  # [documents] bool


class JudgedLists(NamedTuple):
    """The lists of a run with relevant and other documents, and the number of lists that lack one of the two."""

    lists: list[JudgedList]
    left_out: int


def judged_lists(name: str, run: Candidates, qrels: Qrels, at_least: int = 1) -> JudgedLists:
    """The lists with a positive (a grade of `at_least`) and a negative; unjudged documents count as negative.

    A query without judgements, or whose list has only positives or only negatives, is left out.
    """
    if not run:
        raise LimbeckError(f"{name}: the run is empty; score the candidates of some queries first")
    lists = []
    judged = with_positive = 0
    for query, scored in track(run.items(), f"Scores of {name}", len(run)):
        values = finite_scores(name, query, scored)
        judged += query in qrels
        wanted = set(positives(qrels.get(query, {}), at_least))
        relevant = np.fromiter((document in wanted for document in scored), dtype=bool, count=len(scored))
        with_positive += bool(relevant.any())
        if relevant.any() and not relevant.all():
            lists.append(JudgedList(query, values, relevant))
    if lists:
        return JudgedLists(lists, len(run) - len(lists))
    if not judged:
        raise LimbeckError(f"{name}: no query of the run is judged; give the qrels of the split it was made from")
    if not with_positive:
        raise LimbeckError(
            f"{name}: no list holds a document judged {at_least} or more; add positives to the candidates"
        )
    raise LimbeckError(f"{name}: the lists with a positive have no negatives; score negatives for these queries too")


def finite_scores(name: str, query: str, scored: Mapping[str, float]) -> np.ndarray:
    """The scores of one list in its order, [documents]; scores that are not finite are refused."""
    values = np.fromiter(scored.values(), dtype=np.float64, count=len(scored))
    if not np.isfinite(values).all():
        document = next(document for document, score in scored.items() if not math.isfinite(score))
        raise LimbeckError(
            f"{name}: the score of query {query!r}, document {document!r} is not a finite number; score it again"
        )
    return values


def some_models(runs: Mapping[str, Candidates]) -> None:
    """Refuse an analysis without models."""
    if not runs:
        raise LimbeckError("there are no runs; give one run for each model, by name")


def finite_quality(where: str, values: Iterable[float]) -> None:
    """Refuse a failed measurement, which must not enter a mean."""
    for value in values:
        if not math.isfinite(value):
            raise LimbeckError(f"{where}: the quality is {value}; measure that model again or leave it out")
