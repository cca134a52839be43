"""The first results of two models side by side ("In defense of dual-encoders", App. C.11).

A model that finds other documents than its rival may be better than it looks: if few documents were judged, a good
but unjudged answer counts as wrong. Reading the lists on which two models differ most shows such false negatives.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from limbeck.data.dataset import Candidates, Qrels, RankingData, ranked
from limbeck.errors import LimbeckError
from limbeck.progress import track
from limbeck.report.analyses.base import Result, finite_scores
from limbeck.report.analyses.measured_run import MeasuredRun
from limbeck.report.analyses.registry import Analysis, analysis
from limbeck.report.blocks import Block, Item, Section, SideBySide, Text
from limbeck.report.colours import Colours
from limbeck.report.formatting import cut

LONGEST_TEXT = 280


class Listed(Result):
    """A document in a top list; `elsewhere` is its rank in the other model's top list, or None."""

    id: str
    score: float
    text: str  # its beginning
    grade: int | None  # None: nobody judged it
    elsewhere: int | None


class QueryLists(Result):
    """The top lists of both models for one query, and their similarity: 1 if equal, 0 if disjoint."""

    query_id: str
    query: str
    alike: float
    lists: tuple[tuple[Listed, ...], tuple[Listed, ...]]


@analysis
class TopLists(Analysis):
    """The queries on which two models differ most, the most different first."""

    name = "top_lists"
    title = "Top lists"
    about = "the first results of teacher and student side by side"
    place = 90
    by_default = True

    names: tuple[str, str]
    k: int
    at_least: int
    compared: int  # queries that both models ranked
    queries: tuple[QueryLists, ...]

    def unjudged(self, model: int) -> int:
        """How many entries of a model's lists are not judged."""
        return sum(found.grade is None for query in self.queries for found in query.lists[model])

    @classmethod
    def of(cls, run: MeasuredRun) -> TopLists:
        runs = {model.name: run.scores(model) for model in (run.teacher, run.best_student)}
        return top_lists(runs, run.labels, run.data, at_least=run.relevance_level)

    def section(self, colours: Colours) -> Section:
        return top_lists_section(self)


def top_lists(
    runs: Mapping[str, Candidates],
    qrels: Qrels,
    data: RankingData,
    queries: int | Sequence[str] = 10,
    k: int = 5,
    at_least: int = 1,
) -> TopLists:
    """The top k of two named models for `queries`: a number of queries on which they differ most, or ids of queries.

    The similarity of two lists is their average overlap (Fagin, Kumar and Sivakumar, 2003): the mean over the depths 1
    to k of the share of documents that both lists have up to that depth. The first ranks have the largest weight. Ties
    between queries are broken by the smaller id.
    """
    if len(runs) != 2:
        raise LimbeckError(f"top lists compare two models, not {len(runs)}; give two runs by name")
    if k < 1:
        raise LimbeckError(f"the top {k} is empty; use k of 1 or more")
    first, second = runs
    common = _common_queries(runs, qrels)
    tops = {query: (_top(first, query, runs, k), _top(second, query, runs, k)) for query in track(common, "Top lists")}
    alike = {query: average_overlap(*tops[query], k=k) for query in common}
    found = []
    for query in _chosen(queries, alike):
        text = " ".join(data.queries[query].split())
        scores = (runs[first][query], runs[second][query])
        lists = tuple(_listed(model, scores, tops[query], qrels.get(query, {}), data) for model in (0, 1))
        found.append(QueryLists(query_id=query, query=text, alike=alike[query], lists=lists))
    return TopLists(names=(first, second), k=k, at_least=at_least, compared=len(common), queries=tuple(found))


def _common_queries(runs: Mapping[str, Candidates], qrels: Qrels) -> list[str]:
    """The queries that both models ranked, sorted; at least one of them must be judged."""
    first, second = runs.values()
    common = sorted(query for query in first if first[query] and second.get(query))
    if not common:
        raise LimbeckError(f"{' and '.join(runs)} ranked no query in common; score the same queries with both")
    if not any(query in qrels for query in common):
        raise LimbeckError("none of the ranked queries is judged; give the qrels of the split the runs were made from")
    return common


def average_overlap(first: Sequence[str], second: Sequence[str], k: int) -> float:
    """The mean over depths 1..k of the common share; for shorter lists the depth ends earlier."""
    depths = range(1, min(k, max(len(first), len(second))) + 1)
    return sum(len({*first[:depth]} & {*second[:depth]}) / depth for depth in depths) / len(depths)


def _top(name: str, query: str, runs: Mapping[str, Candidates], k: int) -> list[str]:
    finite_scores(name, query, runs[name][query])
    return ranked(runs[name][query])[:k]


def _chosen(queries: int | Sequence[str], alike: Mapping[str, float]) -> list[str]:
    if isinstance(queries, int):
        if queries < 1:
            raise LimbeckError(f"{queries} queries are too few; ask for 1 or more")
        return sorted(alike, key=lambda query: alike[query])[:queries]
    unknown = next((query for query in queries if query not in alike), None)
    if unknown is not None:
        raise LimbeckError(f"query {unknown!r} is not ranked by both models; name one of {len(alike):,} that are")
    return list(queries)


def _listed(
    model: int,
    scores: Sequence[Mapping[str, float]],
    tops: Sequence[Sequence[str]],
    grades: Mapping[str, int],
    data: RankingData,
) -> tuple[Listed, ...]:
    others = {document: rank for rank, document in enumerate(tops[1 - model], start=1)}
    return tuple(
        Listed(
            id=document,
            score=scores[model][document],
            text=cut(data.corpus[document], LONGEST_TEXT),
            grade=grades.get(document),
            elsewhere=others.get(document),
        )
        for document in tops[model]
    )


def top_lists_section(result: TopLists) -> Section:
    """The lists, with relevant documents highlighted."""
    blocks: list[Block] = [Text(_finding(result))]
    for query in result.queries:
        columns = [(name, _items(result, query, model)) for model, name in enumerate(result.names)]
        blocks.append(SideBySide(query.query, columns))
    return Section(
        "Top lists side by side",
        blocks,
        f"The first {result.k} of {result.names[0]} and of {result.names[1]}, for the queries on which they differ "
        "most. If a document answers its query but is marked as not judged, the data are at fault, not the model.",
    )


def _finding(result: TopLists) -> str:
    shown = sum(len(found) for query in result.queries for found in query.lists[:1])
    parts = [f"{result.unjudged(model)} of the {shown} that {name} found" for model, name in enumerate(result.names)]
    return (
        f"{len(result.queries)} of {result.compared:,} queries. Nobody judged {parts[0]} and {parts[1]}: to a measure "
        "they are all wrong."
    )


def _items(result: TopLists, query: QueryLists, model: int) -> list[Item]:
    other = result.names[1 - model]
    items = []
    for found in query.lists[model]:
        relevant = found.grade is not None and found.grade >= result.at_least
        judgement = "relevant" if relevant else "not judged" if found.grade is None else "judged not relevant"
        place = f", #{found.elsewhere} of {other}" if found.elsewhere else ""
        items.append(Item(found.id, f"{found.score:.2f}", judgement + place, found.text, highlighted=relevant))
    return items
