"""The queries for training, for dev and for test."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from limbeck.data import Qrels, RankingData
from limbeck.errors import LimbeckError
from limbeck.files import digest
from limbeck.recipe.data_spec import DataSpec

HELD_OUT = 0.1  # share of the training queries, if there is no dev split


@dataclass(frozen=True)
class QuerySplits:
    """Query ids by their use; labels only for queries whose labels may be used."""

    train: list[str]
    train_labels: Qrels  # positives of the labelled training queries
    dev: list[str]
    dev_labels: Qrels  # empty if dev has no labels
    test: list[str]
    test_labels: Qrels
    held_out: list[str] = field(default_factory=list)  # queries of the training split on which nothing is trained


def split_queries(
    data: RankingData, spec: DataSpec, seed: int, unlabelled: Sequence[str] = (), by_answers: bool = False
) -> QuerySplits:
    """The queries of a run. A split without judgements is unlabelled; a missing dev split is held out of train.

    No query is in two of the three: test has priority, then dev (MS MARCO's dev contains its dev.small).

    `unlabelled` are extra queries to train on; `train_queries` does not limit them. With `spans`, there may be no
    training queries at all: spans of documents take their place. `by_answers`: the test queries are all that have
    answers, judged or not, because answers are all that is measured.
    """
    for split in (spec.train, spec.dev, spec.test):
        if split is not None and data.qrels and split not in data.qrels and split not in ("train", "dev", "test"):
            known = ", ".join(sorted(data.qrels))
            raise LimbeckError(f"{data.name}: there is no split {split!r}; it has {known}")
    if spec.dev is not None and spec.dev == spec.test:
        problem = (
            f"data.dev and data.test are both {spec.test!r}, but weights chosen on a split must not be measured on it"
        )
        raise LimbeckError(f"{problem}; name another split, or null for dev")
    test_labels = data.answered_judgements(spec.test or "") if by_answers else _relevant(data, spec.test)
    dev_labels = {query: grades for query, grades in _relevant(data, spec.dev).items() if query not in test_labels}
    train_labels = _relevant(data, spec.train, spec.min_positives)
    elsewhere = set(test_labels) | set(dev_labels)
    further = set(unlabelled)
    train = [query for query in train_labels if query not in elsewhere]
    if not train and spec.min_positives > 1:
        problem = f"no training query has {spec.min_positives} positives"
        raise LimbeckError(f"{data.name}: {problem}; lower data.min_positives")
    if not train and not further:  # no labels: all queries outside dev and test are unlabelled training queries
        train = [query for query in data.queries if query not in elsewhere]
    train = draw(train, None, seed)
    if dev_labels:
        dev = draw(dev_labels, spec.dev_queries, seed)
    elif spec.dev is not None:
        count = min(spec.dev_queries or len(train), max(1, round(HELD_OUT * len(train))))
        dev, train = train[:count], train[count:]
        dev_labels = {query: train_labels[query] for query in dev if query in train_labels}
    else:
        dev = []
    count = min(spec.held_out, round(2 * HELD_OUT * len(train)))
    held_out, train = train[:count], train[count:]
    train = train[: spec.train_queries]
    if not train and not further and not spec.spans:
        raise LimbeckError(f"{data.name}: no training queries in split {spec.train!r}; check the qrels")
    labelled = [query for query in train if query in train_labels][: spec.labelled_queries]
    return QuerySplits(
        train=[*train, *unlabelled],
        train_labels={query: _sparse(train_labels[query], spec.keep_positives, seed) for query in labelled},
        dev=dev,
        dev_labels={query: dev_labels[query] for query in dev if query in dev_labels},
        test=draw(test_labels, spec.test_queries, seed),
        test_labels=test_labels,
        held_out=held_out,
    )


def _relevant(data: RankingData, split: str | None, least: int = 1) -> Qrels:
    """The judgements of queries with at least `least` relevant documents."""
    judged = data.qrels.get(split or "", {})
    return {query: grades for query, grades in judged.items() if sum(grade > 0 for grade in grades.values()) >= least}


def _sparse(grades: dict[str, int], keep: int | None, seed: int) -> dict[str, int]:
    """The judgements of one query with only `keep` of its positives; a hidden positive is unjudged, not negative."""
    relevant = [document for document, grade in grades.items() if grade > 0]
    hidden = set(draw(relevant, None, seed)[keep:]) if keep is not None else set()
    return {document: grade for document, grade in grades.items() if document not in hidden}


def draw(ids: Iterable[str], count: int | None, seed: int) -> list[str]:
    """`count` ids in an order that depends only on seed and id: a larger draw contains the smaller one."""
    return sorted(ids, key=lambda name: digest(str(seed), name))[:count]
