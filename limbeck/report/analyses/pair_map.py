"""A map of a cross-encoder's embeddings: do they identify the query, or only relevance? (EmbedDistill Fig. 5)

A cross-encoder with a head is trained to separate relevant pairs from others, and the single embedding that its head
reads may contain nothing else. A dual-pooled one has a proxy of the query for each pair. If the proxies of one query
are close together for all documents, and far from other queries, a dual encoder can be matched to them. The picture
shows the plane of the two principal components; the numbers use all dimensions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from limbeck.data.dataset import positives
from limbeck.errors import LimbeckError
from limbeck.report.analyses.base import Result
from limbeck.report.analyses.measured_run import MeasuredRun
from limbeck.report.analyses.registry import Analysis, analysis
from limbeck.report.blocks import Block, Column, PlotFigure, Section, Table, TableRow, Text
from limbeck.report.clouds import Cloud, CloudPoint
from limbeck.report.colours import Colours

if TYPE_CHECKING:
    from limbeck.evaluation.pair_vectors import PairVectors  # imports torch, not needed by `report --help`

QUERIES = 8  # one for each colour
RELEVANT, OTHERS = 2, 8  # maximum number of documents of a query
MOSTLY = 0.8  # from this share of the variance between queries on, vectors identify the query
NAMES = {"query_proxies": "proxies of the query", "pair_embeddings": "embeddings of the pair"}


class MapPoint(Result):
    """One pair on the plane."""

    x: float
    y: float
    query: str
    relevant: bool


class VectorMap(Result):
    """The pairs of one model."""

    name: str
    signal: str
    points: tuple[MapPoint, ...]
    plane: float  # share of the variance in the plane
    by_query: float  # share of the variance between queries
    by_relevance: float  # share of the variance between relevant and other pairs


@analysis
class PairMap(Analysis):
    """Maps of the embeddings of one or several models."""

    name = "pair_map"
    title = "Map of the teacher's embeddings"
    about = "whether a cross-encoder's embeddings of pairs tell queries apart, or only relevant from other pairs"
    place = 95

    maps: tuple[VectorMap, ...]

    @classmethod
    def of(cls, run: MeasuredRun) -> PairMap:
        lists, relevant = _some_lists(run)
        vectors = run.teacher_vectors(lists)
        texts = {query: run.data.queries[query] for query in lists}
        return pair_map({run.teacher.name: vectors}, relevant, texts)

    def section(self, colours: Colours) -> Section:
        return pair_map_section(self)


def _some_lists(run: MeasuredRun) -> tuple[dict[str, list[str]], dict[str, list[bool]]]:
    """A few test queries with the documents that the teacher scores highest, relevant documents first."""
    lists, relevant = {}, {}
    scores = run.scores(run.teacher)
    for query in np.random.default_rng(0).permutation(sorted(scores)).tolist():
        best = sorted(scores[query], key=lambda document: (-scores[query][document], document))
        judged = set(positives(run.labels[query], run.relevance_level))
        yes = [document for document in best if document in judged][:RELEVANT]
        no = [document for document in best if document not in judged][:OTHERS]
        if yes and no:
            lists[query], relevant[query] = yes + no, [True] * len(yes) + [False] * len(no)
        if len(lists) == QUERIES:
            break
    if len(lists) < 2:
        raise LimbeckError("fewer than two test queries have a relevant and another document; add candidates")
    return lists, relevant


def pair_map(
    models: Mapping[str, PairVectors], relevant: Mapping[str, Sequence[bool]], texts: Mapping[str, str]
) -> PairMap:
    """Maps of several models' vectors for the same lists; `relevant` marks the relevant documents of each list."""
    if not models:
        raise LimbeckError("there are no vectors to map; give those of one model at least, by name")
    return PairMap(maps=tuple(_map(name, vectors, relevant, texts) for name, vectors in models.items()))


def _map(
    name: str, vectors: PairVectors, relevant: Mapping[str, Sequence[bool]], texts: Mapping[str, str]
) -> VectorMap:
    queries = [query for query, rows in vectors.lists.items() for _ in rows]
    marks = np.array([mark for query in vectors.lists for mark in relevant[query]])
    rows = np.concatenate(list(vectors.lists.values())).astype(np.float64)
    centred = rows - rows.mean(axis=0)
    total = float((centred**2).sum())
    if not np.isfinite(total) or total == 0:
        raise LimbeckError(f"{name}: its vectors of pairs are all alike or not finite; there is nothing to map")
    plane = principal_plane(centred)
    points = [
        MapPoint(x=float(x), y=float(y), query=texts[query], relevant=bool(mark))
        for (x, y), query, mark in zip(plane, queries, marks, strict=True)
    ]
    return VectorMap(
        name=name,
        signal=vectors.signal,
        points=tuple(points),
        plane=float((plane**2).sum()) / total,
        by_query=between(centred, np.array(queries)),
        by_relevance=between(centred, marks),
    )


def principal_plane(centred: np.ndarray) -> np.ndarray:
    """The coordinates [rows, 2] of centred rows on their two principal components, the larger one first.

    The sign of a component is arbitrary; here its largest entry is positive, so that the same rows give the same map.
    """
    _, _, components = np.linalg.svd(centred, full_matrices=False)
    axes = np.zeros((2, centred.shape[1]))
    axes[: len(components[:2])] = components[:2]
    largest = np.abs(axes).argmax(axis=1)
    signs = np.where(axes[np.arange(2), largest] < 0, -1.0, 1.0)
    plane: np.ndarray = centred @ (axes * signs[:, None]).T
    return plane


def between(centred: np.ndarray, groups: np.ndarray) -> float:
    """The share of the rows' variance between the means of their groups, from 0 to 1."""
    means = ((groups == group, centred[groups == group].mean(axis=0)) for group in np.unique(groups))
    return float(sum(own.sum() * (mean**2).sum() for own, mean in means) / (centred**2).sum())


def pair_map_section(result: PairMap) -> Section:
    """A plot for each model, and its shares of variance."""
    blocks: list[Block] = [Text(" ".join(_finding(one) for one in result.maps))]
    for one in result.maps:
        points = [
            CloudPoint(
                point.x, point.y, point.query, point.relevant, f"{point.query}\n{_verdict(point.relevant)} document"
            )
            for point in one.points
        ]
        caption = f"{one.name}: {NAMES[one.signal]}; the plane has {one.plane:.0%} of their variance."
        meaning = "A colour is a query; squares are pairs with a relevant document."
        picture = Cloud(points, "first component", "second component")
        blocks.append(PlotFigure(picture, f"{caption} {meaning}", height=360))
    columns = [
        Column("Model"),
        Column("Vectors"),
        Column("Between queries", ".0%", help="Share of the variance"),
        Column("Between relevant and other pairs", ".0%", help="Share of the variance"),
    ]
    rows = [TableRow([one.name, NAMES[one.signal], one.by_query, one.by_relevance]) for one in result.maps]
    first = result.maps[0]
    queries = len({point.query for point in first.points})
    chance = (queries - 1) / (len(first.points) - 1)
    note = f"{len(first.points)} pairs of {queries} test queries. Vectors without any order would have {chance:.0%}"
    blocks.append(Table(columns, rows, f"{note} of their variance between queries."))
    return Section(result.title, blocks, "The teacher's vectors of pairs on their two principal components.")


def _verdict(relevant: bool) -> str:
    return "a relevant" if relevant else "another"


def _finding(one: VectorMap) -> str:
    shares = f"{one.by_query:.0%} of the variance is between queries, {one.by_relevance:.0%} between relevant and "
    if one.by_query >= MOSTLY:
        reading = "They tell which query it is, whatever the document, so a dual encoder can be matched to them."
    elif one.by_relevance > one.by_query:
        reading = "They tell the verdict rather than the query, so there is little in them to match beyond scores."
    else:
        reading = "They depend on the document as well, so a query has no one place to be matched to."
    return f"{one.name}, {NAMES[one.signal]}: {shares}other pairs. {reading}"
