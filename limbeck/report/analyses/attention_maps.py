"""Where a cross-encoder looks, and where its student would look if it could (VIRT Fig. 6), token by token.

Students that encode texts apart compute no attention between them. Their virtual map is formed from the queries of one
text and the keys of the other (Eq. 3). How far it is from the teacher's (Eq. 4) says how much of the teacher's
interaction a student has learnt, whether it was trained for that or not.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from limbeck.errors import LimbeckError
from limbeck.report.analyses.base import Result
from limbeck.report.analyses.measured_run import AttentionModels, MeasuredPairs, MeasuredRun
from limbeck.report.analyses.registry import Analysis, analysis
from limbeck.report.blocks import Block, Column, PlotFigure, Section, Table, TableRow, Text
from limbeck.report.colours import Colours
from limbeck.report.heatmaps import MOST, Heatmap, HeatmapGrid
from limbeck.report.plots import Lines, Series, series_class

if TYPE_CHECKING:
    from limbeck.evaluation.attention_maps import TokenMap  # with torch, which `limbeck report --help` does not need
    from limbeck.matchers import Matcher

PICTURES = 3  # pairs that are drawn
DIGITS = 4  # of a value in a picture
Values = tuple[tuple[float, ...], ...]


class ModelMap(Result):
    """One model's map of one pair; rows sum to 1."""

    model: str
    there: Values  # [m, n] from the first text to the second
    back: Values  # [n, m]


class DrawnPair(Result):
    """A pair's tokens, and its maps: the teacher's first."""

    first: tuple[str, ...]
    second: tuple[str, ...]
    maps: tuple[ModelMap, ...]


class StudentDistances(Result):
    """How far a student's maps are from the teacher's, layer by layer; means over pairs."""

    name: str
    layers: tuple[tuple[int, int], ...]  # the student's, and the teacher's that it is compared with
    distances: tuple[float, ...]
    pairs: int

    @property
    def mean(self) -> float:
        return sum(self.distances) / len(self.distances)


@analysis
class AttentionMaps(Analysis):
    """Maps of the teacher and of all students that encode texts apart."""

    name = "attention_maps"
    title = "Attention between the texts"
    about = "where teacher and students look, token by token, and how far apart they are (VIRT)"
    place = 97
    reads_pairs = True

    layer: int  # of the teacher, in the pictures
    share: float  # of the teacher's attention that goes to the other text
    pairs: tuple[DrawnPair, ...]
    students: tuple[StudentDistances, ...]
    left_out: tuple[str, ...] = ()

    @classmethod
    def of(cls, run: MeasuredRun) -> AttentionMaps:
        return attention_maps(run.attention())

    @classmethod
    def of_pairs(cls, run: MeasuredPairs) -> AttentionMaps:
        return attention_maps(run.attention())

    def section(self, colours: Colours) -> Section:
        return attention_maps_section(self, colours)


def attention_maps(models: AttentionModels) -> AttentionMaps:
    """Maps of a few pairs, and distances over all of them; a student that shows no attention is left out."""
    from limbeck.evaluation.attention_maps import token_maps

    teacher = models.teacher()
    students, left_out = list[StudentDistances](), list[str]()
    drawn, layer, share = list[DrawnPair](), 0, 1.0
    for name, load in models.students.items():
        try:
            student = load()
            found = _distances(name, student, teacher, models)
            own, other = _chosen(found, models.layer)
            if not students:
                lengths = (student.text_tokens(0), student.text_tokens(1))
                maps = token_maps(teacher, models.pairs, other, lengths)
                chosen = _to_draw(maps)
                drawn, layer, share = [_drawn(maps[at]) for at in chosen], other, _mean([one.share for one in maps])
            its = token_maps(student, [models.pairs[at] for at in chosen], own)
        except LimbeckError as error:
            left_out.append(f"{name}: {error}")
            continue
        students.append(found)
        drawn = [_with(pair, name, one) for pair, one in zip(drawn, its, strict=True)]
    if not students:
        raise LimbeckError(left_out[0] if left_out else "there is no student whose weights were kept")
    return AttentionMaps(
        layer=layer, share=share, pairs=tuple(drawn), students=tuple(students), left_out=tuple(left_out)
    )


def _distances(name: str, student: Matcher, teacher: Matcher, models: AttentionModels) -> StudentDistances:
    from limbeck.evaluation.attention_maps import layer_pairs, map_distances

    objective = models.objectives.get(name)
    found = map_distances(student, teacher, models.pairs, objective)
    if not len(found):
        raise LimbeckError("no test pair has words in both texts")
    layers = layer_pairs(student, teacher, objective)
    means = tuple(float(value) for value in found.mean(axis=0))
    return StudentDistances(name=name, layers=tuple(layers), distances=means, pairs=len(found))


def _chosen(found: StudentDistances, layer: int | None) -> tuple[int, int]:
    """The layers of student and teacher that are drawn."""
    if layer is None:
        return found.layers[-1]
    if layer >= len(found.layers):
        raise LimbeckError(f"evaluation.attention_layer: it has no layer {layer}, only 0 to {len(found.layers) - 1}")
    return found.layers[layer]


def _to_draw(maps: Sequence[TokenMap]) -> list[int]:
    """The first pairs that fit a page; longer ones only if there are no others."""
    there = [at for at, one in enumerate(maps) if not one.is_empty]
    fits = [at for at in there if max(len(maps[at].first), len(maps[at].second)) <= MOST]
    return [*fits, *(at for at in there if at not in fits)][:PICTURES]


def _drawn(found: TokenMap) -> DrawnPair:
    return _with(DrawnPair(first=found.first[:MOST], second=found.second[:MOST], maps=()), "teacher", found)


def _with(pair: DrawnPair, name: str, found: TokenMap) -> DrawnPair:
    """The pair with one more map; a student that reads other lengths has the tokens that both have."""
    m, n = len(pair.first), len(pair.second)
    if (found.first[:m], found.second[:n]) != (pair.first, pair.second):
        raise LimbeckError(f"{name} reads other tokens of the texts; give all students the same lengths")
    there, back = found.there[:m, :n].round(DIGITS).tolist(), found.back[:n, :m].round(DIGITS).tolist()
    one = ModelMap(model=name, there=tuple(map(tuple, there)), back=tuple(map(tuple, back)))
    return pair.model_copy(update={"maps": (*pair.maps, one)})


def _mean(values: Sequence[float]) -> float:
    return sum(values) / max(1, len(values))


def attention_maps_section(result: AttentionMaps, colours: Colours | None = None) -> Section:
    """Distances by layer, then the maps of each pair, both ways."""
    blocks: list[Block] = [Text(_finding(result)), *_distance_blocks(result, colours)]
    for number, pair in enumerate(result.pairs, 1):
        for forward in (True, False):
            way = "first text to second" if forward else "second text to first"
            blocks.append(HeatmapGrid(_heatmaps(pair, forward), f"Pair {number}, {way}"))
    blocks += [Text(f"Left out: {reason}.") for reason in result.left_out]
    about = (
        "A row is a token and says where, among the other text's tokens, it looks; its shades add up to 1. Maps are "
        f"means over heads, the teacher's of its layer {result.layer} (layers count from 0). Students encode texts "
        "apart: theirs are virtual maps, made of the queries of one text and the keys of the other."
    )
    return Section(result.title, blocks, about)


def _finding(result: AttentionMaps) -> str:
    closest = min(result.students, key=lambda one: one.mean)
    share = f"The teacher gives {result.share:.0%} of a token's attention to the other text in that layer."
    if len(result.students) == 1:
        return f"{closest.name} is {closest.mean:.4f} from its teacher, on average over its layers. {share}"
    farthest = max(result.students, key=lambda one: one.mean)
    return (
        f"{closest.name} is closest to the teacher ({closest.mean:.4f} on average over its layers), {farthest.name} "
        f"farthest ({farthest.mean:.4f}). {share}"
    )


def _distance_blocks(result: AttentionMaps, colours: Colours | None) -> list[Block]:
    depth = max(len(one.layers) for one in result.students)
    columns = [Column("Student"), Column("Mean", ".4f", "low", "Over all layers")]
    columns += [Column(f"Layer {number}", ".4f", "low") for number in range(depth)]
    rows = [
        TableRow([one.name, one.mean, *one.distances, *[None] * (depth - len(one.layers))], "student")
        for one in result.students
    ]
    caption = (
        f"Distance from the teacher's maps (VIRT Eq. 4, one layer at a time), means over {result.students[0].pairs} "
        "test pairs; lower is closer."
    )
    table = Table(columns, rows, caption)
    if depth < 2:
        return [table]
    shades = colours or Colours(one.name for one in result.students)
    series = [
        Series(one.name, [(float(own), value) for (own, _), value in zip(one.layers, one.distances, strict=True)],
               style=series_class(shades[one.name]))
        for one in result.students
    ]  # fmt: skip
    return [table, PlotFigure(Lines(series, "layer", "distance from the teacher", label_points=True), height=300)]


def _heatmaps(pair: DrawnPair, forward: bool) -> list[tuple[str, Heatmap]]:
    rows, columns = (pair.first, pair.second) if forward else (pair.second, pair.first)
    values = {one.model: one.there if forward else one.back for one in pair.maps}
    high = max(max(row) for some in values.values() for row in some)
    return [(name, Heatmap(rows, columns, some, high)) for name, some in values.items()]
