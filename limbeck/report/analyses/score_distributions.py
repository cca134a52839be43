"""How well a model separates the scores of positives and negatives ("In defense of dual-encoders", Fig. 2, 5-7).

The paper finds that a cross-encoder's negatives form a narrow peak, that a dual encoder's negatives spread out until
they overlap with the positives, and that a dual encoder's scores are far from zero. Runs of one student at the
start, in the middle and at the end of training show how its distributions separate.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from limbeck.data.dataset import Candidates, Qrels
from limbeck.errors import LimbeckError
from limbeck.files import read_json
from limbeck.report.analyses.base import Result, judged_lists, some_models
from limbeck.report.analyses.distribution import Distribution, distribution, overlap
from limbeck.report.analyses.measured_run import MeasuredRun
from limbeck.report.analyses.registry import Analysis, analysis
from limbeck.report.blocks import Block, Column, Plot, PlotGrid, Section, Table, TableRow, Text
from limbeck.report.colours import Colours
from limbeck.report.plots import BinnedHistogram

SHIFT = "A shift away from zero does not harm a ranking, but it does harm an objective that matches a teacher's scores."

HEIGHT = 240
SNAPSHOTS = "snapshots"  # saved with a student: its scores on dev during training


class Sides(Result):
    """The scores of positives and of negatives, over the same bins."""

    positives: Distribution
    negatives: Distribution

    @property
    def overlap(self) -> float:
        """The share of area that the two histograms have in common."""
        return overlap(self.positives, self.negatives)

    @property
    def separation(self) -> float | None:
        """The distance of the two means in standard deviations of the negatives; None if all negatives are equal."""
        distance = self.positives.mean - self.negatives.mean
        return distance / self.negatives.std if self.negatives.std else None


class ModelScores(Result):
    """The scores of one model, raw and with each query's mean subtracted."""

    name: str
    queries: int
    left_out: int  # queries without a judged positive, or without a negative, in their list
    raw: Sides
    centred: Sides


@analysis
class ScoreDistributions(Analysis):
    """The score distributions of several models, or of one at several times; `train` has those on training queries."""

    name = "scores"
    title = "Scores"
    about = "the scores of positives and of negatives"
    place = 40
    by_default = True

    models: tuple[ModelScores, ...]
    train: tuple[ModelScores, ...] = ()

    @classmethod
    def of(cls, run: MeasuredRun) -> ScoreDistributions:
        """On test queries, and on training queries if their scores were saved."""
        found = score_distributions(run.all_scores(), run.labels, run.relevance_level)
        scores = run.all_scores(run.train_labels)
        if not all(scores.values()):
            return found
        try:
            trained = score_distributions(scores, run.train_labels, run.relevance_level)
        except LimbeckError:  # no training query has a positive and a negative: show test queries only
            return found
        return found.model_copy(update={"train": trained.models})

    def section(self, colours: Colours) -> Section:
        return score_distributions_section(self)


@analysis
class Snapshots(ScoreDistributions):
    """The student's scores of the dev queries at the start, in the middle and at the end of its training."""

    name = "snapshots"
    title = "Scores while training"
    about = "the scores on dev at the start, in the middle and at the end of training; costs one evaluation on dev"
    place = 50
    by_default = False

    @classmethod
    def of(cls, run: MeasuredRun) -> ScoreDistributions:
        files = sorted((run.folder / SNAPSHOTS).glob("*.json"))
        if len(files) < 2:
            problem = "no scores were kept while it trained"
            raise LimbeckError(f"{problem}; give evaluation.analyses snapshots before training, and a labelled dev")
        midway = {"midway": files[len(files) // 2]} if len(files) > 2 else {}
        moments = {"start": files[0], **midway, "end": files[-1]}
        runs = {name: read_json(path) for name, path in moments.items()}
        return score_distributions(runs, run.dev_labels, run.relevance_level)

    def section(self, colours: Colours) -> Section:
        return replace(score_distributions_section(self), title=self.title)


def score_distributions(runs: Mapping[str, Candidates], qrels: Qrels, at_least: int = 1) -> ScoreDistributions:
    """Distributions of the scores of positives and negatives, for each named model.

    Unjudged documents of a list count as negative. Centred scores are scores minus the mean of the query's list: this
    removes differences between queries that cannot change a ranking. (The paper subtracts one constant from all
    scores of a model, which shifts the raw histogram but keeps its shape.)
    """
    some_models(runs)
    return ScoreDistributions(models=tuple(_model(name, run, qrels, at_least) for name, run in runs.items()))


def _model(name: str, run: Candidates, qrels: Qrels, at_least: int) -> ModelScores:
    lists, left_out = judged_lists(name, run, qrels, at_least)
    relevant = np.concatenate([each.relevant for each in lists])
    raw = np.concatenate([each.scores for each in lists])
    centred = np.concatenate([each.scores - each.scores.mean() for each in lists])
    return ModelScores(
        name=name, queries=len(lists), left_out=left_out, raw=_sides(raw, relevant), centred=_sides(centred, relevant)
    )


def _sides(scores: np.ndarray, relevant: np.ndarray) -> Sides:
    low, high = float(scores.min()), float(scores.max())
    return Sides(
        positives=distribution(scores[relevant], low, high), negatives=distribution(scores[~relevant], low, high)
    )


def score_distributions_section(result: ScoreDistributions) -> Section:
    """One histogram per model, raw and centred, and a table; also for training queries, if known."""
    caption = "Every model has its own axis: compare shapes and overlaps, not positions."
    centred = "Centred: the mean of each query's list is subtracted."
    blocks: list[Block] = [
        Text(_finding(result.models)),
        PlotGrid(_centred(result.models), f"{centred} {caption}", HEIGHT),
        PlotGrid(
            [(model.name, _histogram(model.raw, "score")) for model in result.models],
            f"As the models give them. {SHIFT}",
            HEIGHT,
        ),
        _table(result.models),
    ]
    if result.train:
        blocks += [
            Text(f"On training queries. {_finding(result.train)}"),
            PlotGrid(_centred(result.train), f"Training queries. {centred}", HEIGHT),
            _table(result.train, "Training queries: "),
        ]
    return Section(
        "Score distributions",
        blocks,
        "The scores of judged positives against all other candidates of the same queries.",
    )


def _centred(models: Sequence[ModelScores]) -> list[tuple[str, Plot]]:
    return [(model.name, _histogram(model.centred, "score − query's mean")) for model in models]


def _histogram(sides: Sides, title: str) -> BinnedHistogram:
    shares = {"positives": sides.positives.shares, "negatives": sides.negatives.shares}
    return BinnedHistogram(shares, sides.positives.low, sides.positives.high, title)


def _finding(models: Sequence[ModelScores]) -> str:
    ordered = sorted(models, key=lambda model: model.centred.overlap)
    if len(ordered) == 1:
        return f"The centred scores of positives and negatives overlap by {ordered[0].centred.overlap:.0%}."
    shown = [f"{model.name} {model.centred.overlap:.0%}" for model in ordered]
    return f"How much of the centred scores of positives and negatives overlap: {'; '.join(shown)}. Less is better."


def _table(models: Sequence[ModelScores], where: str = "") -> Table:
    columns = [Column("Model"), Column("Scores")]
    for side in ("Positives", "Negatives"):
        columns += [Column(f"{side}: mean", ",.2f"), Column("std", ",.2f")]
    columns.append(Column("Overlap", ".0f", "low", "Area that the two histograms share", "%"))
    columns.append(Column("Separation", ".2f", "high", "Distance of the means in standard deviations of the negatives"))
    rows = []
    for model in models:
        for kind, sides in (("raw", model.raw), ("centred", model.centred)):
            numbers = [n for d in (sides.positives, sides.negatives) for n in (d.mean, d.std)]
            cells = [model.name, kind, *numbers, 100 * sides.overlap, sides.separation]
            rows.append(TableRow(cells, competes=kind == "centred"))
    return Table(
        columns, rows, f"{where}{_coverage(models)} Separation: distance of the means in deviations of the negatives."
    )


def _coverage(models: Sequence[ModelScores]) -> str:
    """How many queries the numbers come from, for each model if that differs."""
    if len({(model.queries, model.left_out) for model in models}) > 1:
        shown = [f"{model.name} {model.queries:,} of {model.queries + model.left_out:,}" for model in models]
        return f"Queries with a positive and a negative in their list: {'; '.join(shown)}."
    queries, left_out = models[0].queries, models[0].left_out
    return f"{queries:,} queries{f' ({left_out:,} without a positive or a negative left out)' if left_out else ''}."
