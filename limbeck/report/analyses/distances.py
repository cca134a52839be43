"""How well a student's space matches the teacher's (EmbedDistill Fig. 4).

For each pair of test queries, the distance between the student's embeddings is compared with the distance between the
teacher's. If a student has the teacher's geometry, the differences are near zero, even if its scores differ.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from limbeck.errors import LimbeckError
from limbeck.report.analyses.base import Result
from limbeck.report.analyses.distribution import Distribution, distribution
from limbeck.report.analyses.measured_run import MeasuredRun
from limbeck.report.analyses.registry import Analysis, analysis
from limbeck.report.blocks import Column, PlotFigure, Section, Table, TableRow, Text
from limbeck.report.colours import Colours
from limbeck.report.plots import BinnedHistogram, series_class


class ModelDistances(Result):
    """The differences between one model's distances and the reference's."""

    name: str
    differences: Distribution
    correlation: float  # Pearson, of its distances and the reference's


@analysis
class Distances(Analysis):
    """The differences of several models from one reference."""

    name = "distances"
    title = "Distances between queries"
    about = "how well a student's space matches the teacher's: differences in the distance of two queries"
    place = 90

    reference: str
    models: tuple[ModelDistances, ...]

    @classmethod
    def of(cls, run: MeasuredRun) -> Distances:
        known = {model.name: model.distances for model in run.models if model.distances}
        order = [model.name for role in ("teacher", "baseline") for model in run.models if model.role == role]
        reference = next((name for name in order if name in known), None)
        if reference is None:
            raise LimbeckError("no teacher and no baseline keeps one vector per text; use a dual encoder as teacher")
        return distances(reference, known)

    def section(self, colours: Colours) -> Section:
        return distances_section(self, colours)


def distances(reference: str, known: Mapping[str, Sequence[float]]) -> Distances:
    """| ||t_i - t_j|| - ||s_i - s_j|| | over pairs of queries, for each model except the reference."""
    theirs = np.asarray(known[reference])
    others = {name: np.asarray(values) for name, values in known.items() if name != reference}
    if not others:
        raise LimbeckError("no other model keeps one vector per text; distil into a dual encoder")
    apart = {name: np.abs(values - theirs) for name, values in others.items()}
    highest = max(float(values.max()) for values in apart.values()) or 1.0
    models = [
        ModelDistances(
            name=name,
            differences=distribution(values, 0.0, highest),
            correlation=_correlation(others[name], theirs),
        )
        for name, values in apart.items()
    ]
    return Distances(reference=reference, models=tuple(models))


def _correlation(ours: np.ndarray, theirs: np.ndarray) -> float:
    """Pearson's r; 0 if one of them does not vary."""
    if len(ours) < 2 or ours.std() == 0 or theirs.std() == 0:
        return 0.0
    return float(np.corrcoef(ours, theirs)[0, 1])


def distances_section(result: Distances, colours: Colours | None = None) -> Section:
    """All models in one histogram, and a table of the numbers."""
    shares = {model.name: model.differences.shares for model in result.models}
    colours = colours or Colours(shares)
    styles = [series_class(colours[name]) for name in shares]
    first = result.models[0].differences
    plot = BinnedHistogram(shares, first.low, first.high, f"difference to {result.reference}", styles)
    columns = [
        Column("Model"),
        Column("Mean", ".3f", "low", "Mean difference in the distance of two queries"),
        Column("95%", ".3f", "low", "A twentieth of the differences is larger"),
        Column("Correlation", ".3f", "high", "Of its distances and the reference's"),
        Column("Pairs", ",.0f"),
    ]
    rows = [_row(model) for model in result.models]
    best = min(result.models, key=lambda model: model.differences.mean)
    finding = (
        f"{best.name} comes nearest to the space of {result.reference}: its distances between queries differ by "
        f"{best.differences.mean:.3f} on average."
    )
    return Section(
        Distances.title,
        [Text(finding), PlotFigure(plot, height=340), Table(columns, rows)],
        "For each pair of test queries, how much the distance between the model's unit vectors differs from the "
        "distance between the reference's. At zero, both models see the two queries equally far apart.",
    )


def _row(model: ModelDistances) -> TableRow:
    found = model.differences
    return TableRow([model.name, found.mean, found.quantiles[0.95], model.correlation, found.count])
