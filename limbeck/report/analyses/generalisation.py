"""Does a dual encoder lack capacity, or does it generalise worse ("In defense of dual-encoders", Fig. 1, 3, Table 2)?

The paper trains cross-encoders and dual encoders of growing embedding size. With enough dimensions the dual encoder is
as good as the cross-encoder on the queries it was trained on, and still worse on new ones: it overfits. (The paper
varies the width of pretrained models. Where there is one set of weights, a projection stands in for the width of the
students; a report has to say so.) The question can be asked of models of one size, too.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Literal, NamedTuple

from limbeck.errors import LimbeckError, did_you_mean
from limbeck.report.analyses.base import Result, finite_quality
from limbeck.report.analyses.spread import Spread, spread
from limbeck.report.blocks import Block, Column, PlotFigure, Row, Section, Table, Text
from limbeck.report.plots import SERIES_COLOURS, Lines, Series
from limbeck.report.words import listed, measure_title

Verdict = Literal["no gap", "generalisation", "capacity", "both"]
EQUAL = 0.05  # of the reference's quality


class TrainTest(NamedTuple):
    """The quality of one trained model on queries it was trained on, and on new ones."""

    model: str
    size: float
    train: float
    test: float
    seed: int = 0


class SizeResult(Result):
    """A model at one size, over its seeds; `verdict` is None for the reference itself."""

    size: float
    train: Spread
    test: Spread
    gap: Spread  # train minus test, seed by seed
    verdict: Verdict | None = None


class ModelCurve(Result):
    """A model as its size grows."""

    name: str
    sizes: tuple[SizeResult, ...]  # rising


class Generalisation(Result):
    """Train and test quality of several models against a reference, which is the first of them."""

    measure: str
    tolerance: float
    models: tuple[ModelCurve, ...]
    setting: str = "size"  # what was varied; empty where nothing was


def generalisation(
    points: Iterable[TrainTest | tuple[str, float, float, float, int]],
    measure: str = "mrr@10",
    reference: str | None = None,
    tolerance: float = EQUAL,
    setting: str = "size",
) -> Generalisation:
    """Means and spread over seeds, the gap between train and test, and a verdict for every model and size.

    Each model is compared with the `reference` (the teacher; by default the model of the first point) at the same size,
    or at the reference's largest size where it has not that one. "Lower" means lower by more than `tolerance` times the
    reference's quality and by more than twice the standard error of the difference, as far as seeds tell it. Then:

    - test quality not lower: "no gap", whatever the train quality is;
    - test lower, train not lower: "generalisation": it can represent what the reference can, and does not carry it
      over to new queries;
    - test and train lower: "capacity" (or training: nothing here tells the two apart); but "both" where it falls
      short by more on test than on train, by the same rule for what counts as more.
    """
    runs = _by_model([TrainTest(*point) for point in points])
    if not runs:
        raise LimbeckError("there are no points; give model, size, train quality, test quality and seed of each run")
    chosen = reference if reference is not None else next(iter(runs))
    if chosen not in runs:
        raise LimbeckError(f"no point is of the reference {chosen!r}; {did_you_mean(chosen, list(runs))}")
    yardstick = _sizes(runs[chosen])
    curves = [ModelCurve(name=chosen, sizes=tuple(yardstick))]
    for name, sizes in runs.items():
        if name != chosen:
            judged = [_judged(each, yardstick, tolerance) for each in _sizes(sizes)]
            curves.append(ModelCurve(name=name, sizes=tuple(judged)))
    return Generalisation(measure=measure, tolerance=tolerance, models=tuple(curves), setting=setting)


def _by_model(points: list[TrainTest]) -> dict[str, dict[float, dict[int, TrainTest]]]:
    """Model -> size -> seed -> point, models in the order in which they came."""
    runs: dict[str, dict[float, dict[int, TrainTest]]] = defaultdict(lambda: defaultdict(dict))
    for point in points:
        where = f"{point.model}, size {point.size:g}, seed {point.seed}"
        finite_quality(where, (point.train, point.test))
        if point.seed in runs[point.model][point.size]:
            raise LimbeckError(f"{where}: given twice; keep one of the two, or give the seeds their own numbers")
        runs[point.model][point.size][point.seed] = point
    return runs


def _sizes(sizes: dict[float, dict[int, TrainTest]]) -> list[SizeResult]:
    found = []
    for size in sorted(sizes):
        points = list(sizes[size].values())
        train, test = (spread([getattr(point, side) for point in points]) for side in ("train", "test"))
        gap = spread([point.train - point.test for point in points])
        found.append(SizeResult(size=size, train=train, test=test, gap=gap))
    return found


def _judged(result: SizeResult, yardstick: list[SizeResult], tolerance: float) -> SizeResult:
    reference = next((each for each in yardstick if each.size == result.size), yardstick[-1])
    return result.model_copy(update={"verdict": _verdict(result, reference, tolerance)})


def _verdict(model: SizeResult, reference: SizeResult, tolerance: float) -> Verdict:
    def more(difference: float, quality: Spread, *noisy: Spread) -> bool:
        noise = sum(each.variance_of_mean for each in noisy) ** 0.5
        return difference > max(tolerance * abs(quality.mean), 2 * noise)

    on_train, on_test = (getattr(reference, side).mean - getattr(model, side).mean for side in ("train", "test"))
    if not more(on_test, reference.test, model.test, reference.test):
        return "no gap"
    if not more(on_train, reference.train, model.train, reference.train):
        return "generalisation"
    if more(on_test - on_train, reference.test, model.gap, reference.gap):
        return "both"
    return "capacity"


def generalisation_section(result: Generalisation) -> Section:
    """The answer for each model, train and test lines, and the numbers."""
    blocks: list[Block] = [Text(sentence) for sentence in _answers(result)]
    several = any(each.train.count > 1 for model in result.models for each in model.sizes)
    caption = "Error bars: one standard deviation over seeds." if several else "One seed each: no error bars."
    blocks += [PlotFigure(_plot(result), caption, 400)] if result.setting else []
    blocks.append(_table(result))
    grows = f", as {result.setting} grows" if result.setting else ""
    return Section(
        "Capacity or generalisation?",
        blocks,
        f"Quality on the queries of training against quality on new ones{grows}. Two qualities "
        f"that differ by no more than {result.tolerance:.0%} of the reference's, or by no more than seeds do, count as "
        f"equal.{_stand_in(result.setting)}",
    )


def _stand_in(setting: str) -> str:
    if not setting.endswith("dim"):
        return ""
    return (
        " A learnt projection stands in for the width of a pretrained model, for students alone: the reference has one "
        "size, and small sizes lose more than a model that was pretrained so narrow would."
    )


def _answers(result: Generalisation) -> list[str]:
    reference, *others = result.models
    if not others:
        widest = reference.sizes[-1]
        return [f"{reference.name} loses {widest.gap.mean:.3f} from train to test{_place(result, widest)}."]
    return [_answer(reference.name, model, result) for model in others]


def _answer(reference: str, model: ModelCurve, result: Generalisation) -> str:
    largest, measure = model.sizes[-1], measure_title(result.measure)
    numbers = f"train {largest.train.mean:.3f}, test {largest.test.mean:.3f} {measure}{_place(result, largest)}"
    words = {
        "no gap": f"is as good as {reference} on new queries: there is no gap to explain",
        "generalisation": f"is as good as {reference} on the queries of training and worse on new ones: it lacks "
        "generalisation, not capacity",
        "capacity": f"is worse than {reference} even on the queries of training: it lacks capacity, or training",
        "both": f"is worse than {reference} on the queries of training, and loses more than it on new ones: it lacks "
        "capacity (or training) and generalisation",
    }[largest.verdict or "no gap"]
    return f"{model.name} {words} ({numbers}{_smaller(model)})."


def _place(result: Generalisation, size: SizeResult) -> str:
    return f" at {result.setting} {size.size:g}" if result.setting else ""


def _smaller(model: ModelCurve) -> str:
    """What smaller sizes lack, where that is something else than the largest lacks."""
    sizes: dict[str, list[str]] = defaultdict(list)
    for each in model.sizes[:-1]:
        if each.verdict != model.sizes[-1].verdict:
            sizes[each.verdict or ""].append(f"{each.size:g}")
    return "".join(f"; {verdict} at {listed(found)}" for verdict, found in sizes.items())


def _plot(result: Generalisation) -> Lines:
    """One colour a model; train dashed, test drawn through."""
    series = []
    for index, model in enumerate(result.models):
        for side, dash in (("train", 1), ("test", 0)):
            spreads: list[tuple[float, Spread]] = [(each.size, getattr(each, side)) for each in model.sizes]
            bars = [each.error_bar for _, each in spreads] if any(each.std is not None for _, each in spreads) else []
            points = [(size, each.mean) for size, each in spreads]
            style = f"series-{index % SERIES_COLOURS} dash-{dash}"
            series.append(Series(f"{model.name}, {side}", points, bars, style))
    sizes = {each.size for model in result.models for each in model.sizes}
    return Lines(series, result.setting, measure_title(result.measure), log_x=min(sizes) > 0, label_points=True)


def _table(result: Generalisation) -> Table:
    sized = [Column(result.setting.capitalize(), ",g")] if result.setting else []
    columns = [Column("Model"), *sized, Column("Seeds", ".0f")]
    columns += [Column("Train", ".3f"), Column("std", ".3f"), Column("Test", ".3f", "high"), Column("std", ".3f")]
    columns += [Column("Gap", "+.3f", help="Train minus test"), Column("std", ".3f"), Column("What is lacking")]
    rows = []
    for model in result.models:
        for each in model.sizes:
            numbers = [number for part in (each.train, each.test, each.gap) for number in (part.mean, part.std)]
            verdict = {"no gap": "nothing", None: "reference"}.get(each.verdict, each.verdict)
            size = [each.size] if result.setting else []
            cells = [model.name, *size, each.train.count, *numbers, verdict]
            rows.append(Row(cells, competes=each.verdict is not None))
    return Table(columns, rows)
