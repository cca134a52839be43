"""By how much a model prefers positives to negatives ("In defense of dual-encoders", Fig. 2 right, Fig. 8)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from limbeck.data.dataset import Candidates, Qrels
from limbeck.errors import LimbeckError
from limbeck.report.analyses.base import JudgedList, Result, judged_lists, some_models
from limbeck.report.analyses.distribution import Distribution, distribution
from limbeck.report.analyses.measured_run import MeasuredRun
from limbeck.report.analyses.registry import Analysis, analysis
from limbeck.report.blocks import Column, PlotFigure, Section, Table, TableRow, Text
from limbeck.report.colours import Colours
from limbeck.report.formatting import signed
from limbeck.report.plots import BinnedHistogram, series_class


class ModelMargins(Result):
    """The margins of one model; `wrong` is the share of pairs in which the negative scores higher."""

    name: str
    queries: int
    left_out: int  # queries without a judged positive, or without a negative, in their list
    rho: float  # the largest range of scores within one query
    margins: Distribution
    wrong: float


@analysis
class NormalisedMargins(Analysis):
    """The margins of several models on one scale."""

    name = "margins"
    title = "Margins"
    about = "by how much positives are preferred to negatives"
    place = 60
    by_default = True

    models: tuple[ModelMargins, ...]

    @classmethod
    def of(cls, run: MeasuredRun) -> NormalisedMargins:
        return normalised_margins(run.all_scores(), run.labels, run.relevance_level)

    def section(self, colours: Colours) -> Section:
        return normalised_margins_section(self, colours)


def normalised_margins(runs: Mapping[str, Candidates], qrels: Qrels, at_least: int = 1) -> NormalisedMargins:
    """(s+ - s-) / rho over all pairs of a positive and a negative of one query, for each named model.

    The paper calls rho "the maximal score range" without a definition. Here rho = max over queries of (highest - lowest
    score in that query's list), one number per model. So margins lie in -1..1 and do not change when a model's scores
    are scaled or shifted. A range over all scores would include shifts between queries and make margins smaller. Every
    pair counts once; unjudged documents of a list count as negative. One extreme score makes rho large and all margins
    of its model small: compare the shares of wrong pairs too.
    """
    some_models(runs)
    return NormalisedMargins(models=tuple(_model(name, run, qrels, at_least) for name, run in runs.items()))


def _model(name: str, run: Candidates, qrels: Qrels, at_least: int) -> ModelMargins:
    lists, left_out = judged_lists(name, run, qrels, at_least)
    rho = max(float(np.ptp(each.scores)) for each in lists)
    if rho == 0:
        raise LimbeckError(f"{name}: every document of a query has the same score; use a model that ranks them")
    margins = np.concatenate([_margins(each) for each in lists])
    return ModelMargins(
        name=name,
        queries=len(lists),
        left_out=left_out,
        rho=rho,
        margins=distribution(margins / rho, -1.0, 1.0),
        wrong=float((margins < 0).mean()),
    )


def _margins(judged: JudgedList) -> np.ndarray:
    """All positives against all negatives: [positives * negatives]."""
    return np.subtract.outer(judged.scores[judged.relevant], judged.scores[~judged.relevant]).ravel()


def normalised_margins_section(result: NormalisedMargins, colours: Colours | None = None) -> Section:
    """All models in one histogram, and a table of the numbers."""
    shares = {model.name: model.margins.shares for model in result.models}
    colours = colours or Colours(shares)
    plot = BinnedHistogram(shares, -1.0, 1.0, "normalised margin", [series_class(colours[name]) for name in shares])
    columns = [
        Column("Model"),
        Column("Mean", "+.3f", "high"),
        Column("Median", "+.3f", "high"),
        Column("5%", "+.3f", help="A twentieth of the margins is smaller"),
        Column("95%", "+.3f", help="A twentieth of the margins is larger"),
        Column("Wrong order", ".1f", "low", "Pairs in which the negative scores higher", "%"),
        Column("Largest range", ",.2f", help="rho: the largest score range within one query"),
        Column("Pairs", ",.0f"),
    ]
    rows = []
    for model in result.models:
        margins = model.margins
        quantiles = [margins.quantiles[share] for share in (0.05, 0.95)]
        numbers = [margins.mean, margins.median, *quantiles, 100 * model.wrong, model.rho, margins.count]
        rows.append(TableRow([model.name, *numbers]))
    return Section(
        "Margins",
        [Text(_finding(result)), PlotFigure(plot, height=340), Table(columns, rows)],
        "The score of a positive minus that of a negative of the same query, divided by the model's largest score "
        "range within a query. Right of zero, the order is correct.",
    )


def _finding(result: NormalisedMargins) -> str:
    ordered = sorted(result.models, key=lambda model: -model.margins.mean)
    shown = [
        f"{model.name} {signed(model.margins.mean)} ({model.wrong:.1%} of pairs in wrong order)" for model in ordered
    ]
    return f"Mean margin: {'; '.join(shown)}."
