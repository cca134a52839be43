"""Does a dual encoder lack capacity, or does it generalise worse ("In defense of dual-encoders", Fig. 1, 3, Table 2)?

The paper trains cross-encoders and dual encoders with growing embedding size. With enough dimensions the dual encoder
is as good as the cross-encoder on the queries it was trained on, but worse on new ones: it overfits. (The paper varies
the width of pretrained models. With only one set of weights, a projection replaces the width of the students, and a
report has to say so.) The same question makes sense for models of one size.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, NamedTuple

import numpy as np

from limbeck.errors import LimbeckError, did_you_mean
from limbeck.report.analyses.base import Result, finite_quality
from limbeck.report.analyses.registry import Analysis, analysis
from limbeck.report.analyses.spread import Spread, spread
from limbeck.report.blocks import Block, Cell, Column, PlotFigure, Section, Table, TableRow, Text
from limbeck.report.colours import Colours
from limbeck.report.formatting import listed, measure_title, signed
from limbeck.report.plots import Level, Lines, Series, series_style

Verdict = Literal["no gap", "generalisation", "capacity", "both", "undecided"]
FEWEST = 20  # queries on train and on test; fewer may all be tied by chance
DEVIATIONS = 1.96  # standard deviations that contain 95% of a normal distribution


class TrainTest(NamedTuple):
    """The quality of one trained model per query, on training queries and on new ones."""

    model: str
    size: float
    train: Mapping[str, float]  # query -> quality
    test: Mapping[str, float]
    seed: int = 0


class Gap(Result):
    """How much worse a model is than the reference: the mean over queries, its 95% interval and standard error."""

    queries: int
    mean: float
    low: float
    high: float
    error: float

    @property
    def is_worse(self) -> bool:
        return self.low > 0

    def __str__(self) -> str:
        return f"{signed(self.mean, 3)} [{signed(self.low, 3)},\u00a0{signed(self.high, 3)}]"


class SizeResult(Result):
    """A model at one size, over its seeds; the reference has neither gaps nor a verdict."""

    size: float
    train: Spread
    test: Spread
    on_train: Gap | None = None
    on_test: Gap | None = None
    verdict: Verdict | None = None


class ModelCurve(Result):
    """A model at all its sizes."""

    name: str
    sizes: tuple[SizeResult, ...]  # ascending


@analysis
class Generalisation(Analysis):
    """Train and test quality of several models; the first is the reference for the others."""

    name = "generalisation"
    title = "Capacity or generalisation"
    about = "train against test quality: capacity or generalisation"
    place = 20
    made_by = "runs with training queries make it automatically; set evaluation.train_queries and run again"
    dropped = "tolerance"

    measure: str
    models: tuple[ModelCurve, ...]
    setting: str = "size"  # the setting that was varied; empty if none

    def section(self, colours: Colours) -> Section:
        return generalisation_section(self, colours)


Seeds = dict[int, TrainTest]


def generalisation(
    points: Iterable[TrainTest | tuple[str, float, Mapping[str, float], Mapping[str, float], int]],
    measure: str = "mrr@10",
    reference: str | None = None,
    setting: str = "size",
) -> Generalisation:
    """Means and spread over seeds, the gaps to the reference on train and test, and a verdict.

    Each model is compared with the `reference` (the teacher; by default the model of the first point) at the same size,
    or at the reference's largest size if it does not have that one. A gap is the mean over queries of the reference's
    quality minus the model's, both averaged over seeds. Train and test queries are not equally hard, so a model's two
    qualities cannot be compared; its two gaps can. A model is worse if the 95% bootstrap interval of the gap is above
    0. The verdict:

    - not worse on test: "no gap", regardless of train;
    - worse on both: "capacity" (or training: the numbers cannot separate the two); "both" if the gap on test exceeds
      the gap on train by more than 1.96 standard errors of their difference;
    - worse on test only: "generalisation": the model can represent what the reference can, but does not transfer it to
      new queries. "Undecided" if the interval on train contains the whole gap on test.

    With fewer than 20 queries on train or on test the verdict is "undecided".
    """
    runs = _by_model([TrainTest(*point) for point in points])
    if not runs:
        raise LimbeckError("there are no points; give model, size, train quality, test quality and seed of each run")
    chosen = reference if reference is not None else next(iter(runs))
    if chosen not in runs:
        raise LimbeckError(f"no point is of the reference {chosen!r}; {did_you_mean(chosen, list(runs))}")
    yardstick = runs[chosen]
    own = tuple(_size(size, yardstick[size]) for size in sorted(yardstick))
    curves = [ModelCurve(name=chosen, sizes=own)]
    for name, sizes in runs.items():
        if name != chosen:
            judged = [
                _judged(size, sizes[size], yardstick.get(size, yardstick[max(yardstick)])) for size in sorted(sizes)
            ]
            curves.append(ModelCurve(name=name, sizes=tuple(judged)))
    return Generalisation(measure=measure, models=tuple(curves), setting=setting)


def _by_model(points: list[TrainTest]) -> dict[str, dict[float, Seeds]]:
    """Model -> size -> seed -> point, models in the order of the points."""
    runs: dict[str, dict[float, Seeds]] = defaultdict(lambda: defaultdict(dict))
    for point in points:
        where = f"{point.model}, size {point.size:g}, seed {point.seed}"
        for side, values in (("training", point.train), ("test", point.test)):
            if not values:
                raise LimbeckError(f"{where}: there is no {side} query; measure some of both kinds")
            finite_quality(where, values.values())
        if point.seed in runs[point.model][point.size]:
            raise LimbeckError(f"{where}: given twice; keep one of the two, or give the seeds their own numbers")
        runs[point.model][point.size][point.seed] = point
    return runs


def _size(size: float, seeds: Seeds) -> SizeResult:
    train, test = (
        spread([float(np.mean(list(values.values()))) for values in sides])
        for sides in ([each.train for each in seeds.values()], [each.test for each in seeds.values()])
    )
    return SizeResult(size=size, train=train, test=test)


def _judged(size: float, seeds: Seeds, reference: Seeds) -> SizeResult:
    on_train = _gap([each.train for each in seeds.values()], [each.train for each in reference.values()])
    on_test = _gap([each.test for each in seeds.values()], [each.test for each in reference.values()])
    found = {"on_train": on_train, "on_test": on_test, "verdict": _verdict(on_train, on_test)}
    return _size(size, seeds).model_copy(update=found)


def _gap(model: Sequence[Mapping[str, float]], reference: Sequence[Mapping[str, float]]) -> Gap:
    """The reference minus the model, per query, each averaged over its seeds."""
    queries = sorted(reference[0])
    if any(set(values) != set(queries) for values in (*model, *reference)):
        raise LimbeckError("the models were measured on different queries; measure all of them on the same")
    means = [np.mean([[values[query] for query in queries] for values in side], axis=0) for side in (reference, model)]
    differences = means[0] - means[1]  # [queries]
    if len(queries) < 2:
        raise LimbeckError("one query is too few; set evaluation.train_queries and data.test_queries to 2 or more")
    from limbeck.evaluation.significance import bootstrap_interval  # imports scipy, which the help does not need

    low, high = bootstrap_interval(differences)
    error = float(differences.std(ddof=1) / len(queries) ** 0.5)
    return Gap(queries=len(queries), mean=float(differences.mean()), low=low, high=high, error=error)


def _verdict(on_train: Gap, on_test: Gap) -> Verdict:
    if min(on_train.queries, on_test.queries) < FEWEST:
        return "undecided"
    if not on_test.is_worse:
        return "no gap"
    if on_train.is_worse:
        noise = (on_train.error**2 + on_test.error**2) ** 0.5
        return "both" if on_test.mean - on_train.mean > DEVIATIONS * noise else "capacity"
    return "undecided" if on_train.high >= on_test.mean else "generalisation"


def generalisation_section(result: Generalisation, colours: Colours | None = None) -> Section:
    """The verdict for each model, lines for train and test, and the numbers."""
    blocks: list[Block] = [Text(sentence) for sentence in _answers(result)]
    several = any(each.train.count > 1 for model in result.models for each in model.sizes)
    caption = "Error bars: one standard deviation over seeds." if several else "One seed each: no error bars."
    blocks += [PlotFigure(_plot(result, colours), caption, 400)] if result.setting else []
    blocks.append(_table(result))
    grows = f", as {result.setting} grows" if result.setting else ""
    return Section(
        "Capacity or generalisation?",
        blocks,
        f"Quality on training queries against quality on new queries{grows}. {_rule(result.models[0].name)}"
        f"{_stand_in(result.setting)}",
    )


def _rule(reference: str) -> str:
    return (
        f"A model is worse than {reference} if the 95% interval of their difference, paired by query, is above 0. "
        "If it is worse on train, it lacks capacity or training. If it is worse only on test, it lacks generalisation. "
        "It lacks both if the gap on test exceeds that on train by more than 1.96 standard errors. It stays undecided "
        f"if the interval on train contains the whole gap on test, or if there are fewer than {FEWEST} queries."
    )


def _stand_in(setting: str) -> str:
    if not setting.endswith("dim"):
        return ""
    return (
        " A learnt projection replaces the width of a pretrained model, only for students: the reference has one "
        "size, and small sizes lose more than a model that was pretrained at that width."
    )


def _answers(result: Generalisation) -> list[str]:
    reference, *others = result.models
    if not others:
        widest = reference.sizes[-1]
        return [
            f"{reference.name} reaches {widest.train.mean:.3f} on train and {widest.test.mean:.3f} on test"
            f"{_place(result, widest)}; without another model there is no gap to explain."
        ]
    return [_answer(reference.name, model, result) for model in others]


def _answer(reference: str, model: ModelCurve, result: Generalisation) -> str:
    largest = model.sizes[-1]
    return f"{model.name} {_words(reference, largest)} ({_numbers(result, largest)}{_smaller(model)})."


def _words(reference: str, found: SizeResult) -> str:
    return {
        "no gap": f"{_no_worse(reference, found.on_test)} on new queries: there is no gap to explain",
        "generalisation": f"{_no_worse(reference, found.on_train)} on training queries and is worse on new "
        "ones: it lacks generalisation, not capacity",
        "capacity": f"is worse than {reference} even on training queries: it lacks capacity, or training",
        "both": f"is worse than {reference} on training queries, and loses more on new ones: it lacks "
        "capacity (or training) and generalisation",
        "undecided": _undecided(reference, found),
    }[found.verdict or "no gap"]


def _no_worse(reference: str, gap: Gap | None) -> str:
    better = gap is not None and gap.high < 0
    return f"is better than {reference}" if better else f"does not differ from {reference}"


def _undecided(reference: str, found: SizeResult) -> str:
    assert found.on_train is not None and found.on_test is not None
    if found.on_test.queries < FEWEST:
        return f"was compared with {reference} on {found.on_test.queries} new queries: too few to decide"
    remedy = "undecided; use more evaluation.train_queries"
    if found.on_train.queries < FEWEST:
        return f"was compared with {reference} on {found.on_train.queries} training queries: {remedy}"
    return (
        f"is worse than {reference} on new queries; on the {found.on_train.queries:,} of training there may be no gap "
        f"or one as large: {remedy}"
    )


def _numbers(result: Generalisation, found: SizeResult) -> str:
    """Both gaps with their intervals, in the units of the measure."""
    parts = [
        f"{gap} on {side}" for side, gap in (("train", found.on_train), ("test", found.on_test)) if gap is not None
    ]
    return f"gap in {measure_title(result.measure)} {', '.join(parts)}{_place(result, found)}"


def _place(result: Generalisation, size: SizeResult) -> str:
    return f" at {result.setting} {size.size:g}" if result.setting else ""


def _smaller(model: ModelCurve) -> str:
    """The verdicts of smaller sizes, if they differ from that of the largest."""
    sizes: dict[str, list[str]] = defaultdict(list)
    for each in model.sizes[:-1]:
        if each.verdict != model.sizes[-1].verdict:
            sizes[each.verdict or ""].append(f"{each.size:g}")
    return "".join(f"; {verdict} at {listed(found)}" for verdict, found in sizes.items())


def _plot(result: Generalisation, colours: Colours | None) -> Lines:
    """One colour per model; train dashed, test solid. A reference with a single size is drawn as a level."""
    colours = colours or Colours(model.name for model in result.models)
    sizes = {each.size for model in result.models for each in model.sizes}
    series, levels = list[Series](), list[Level]()
    for index, model in enumerate(result.models):
        for side, dash in (("train", 1), ("test", 0)):
            spreads: list[tuple[float, Spread]] = [(each.size, getattr(each, side)) for each in model.sizes]
            name, style = f"{model.name}, {side}", series_style(colours[model.name], dash)
            if index == 0 and len(spreads) == 1 < len(sizes):
                levels.append(Level(name, spreads[0][1].mean, style))
                continue
            bars = [each.error_bar for _, each in spreads] if any(each.std is not None for _, each in spreads) else []
            series.append(Series(name, [(size, each.mean) for size, each in spreads], bars, style))
    title, log_x = measure_title(result.measure), min(sizes) > 0
    return Lines(series, result.setting, title, log_x=log_x, label_points=True, levels=levels)


def _table(result: Generalisation) -> Table:
    sized = [Column(result.setting.capitalize(), ",g")] if result.setting else []
    columns = [Column("Model"), *sized, Column("Seeds", ".0f")]
    columns += [Column("Train", ".3f"), Column("±", ".3f", help="Standard deviation over seeds")]
    columns += [Column("Test", ".3f", "high"), Column("±", ".3f", help="Standard deviation over seeds")]
    for side in ("train", "test"):
        columns.append(
            Column(f"Gap on {side}", help="The reference's quality minus the model's, with its 95% interval")
        )
    columns.append(Column("What is lacking"))
    rows = []
    for model in result.models:
        for each in model.sizes:
            qualities = [number for part in (each.train, each.test) for number in (part.mean, part.std)]
            gaps = [str(gap) if gap is not None else None for gap in (each.on_train, each.on_test)]
            verdict = {"no gap": "nothing", None: "reference"}.get(each.verdict, each.verdict)
            size = [each.size] if result.setting else []
            cells: list[Cell] = [model.name, *size, each.train.count, *qualities, *gaps, verdict]
            rows.append(TableRow(cells, competes=each.verdict is not None))
    return Table(columns, rows, _coverage(result))


def _coverage(result: Generalisation) -> str:
    found = next((each for model in result.models for each in model.sizes if each.on_train and each.on_test), None)
    if found is None or found.on_train is None or found.on_test is None:
        return ""
    return (
        f"{found.on_train.queries:,} training queries, {found.on_test.queries:,} test queries. Gaps are "
        f"{result.models[0].name} minus the model, means over seeds, with "
        "95% intervals over queries."
    )
