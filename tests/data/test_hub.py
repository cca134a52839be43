"""Neither package is needed: what is tested is how theirs is read, on small stand-ins with the same interface."""

import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

from limbeck.data import PairData, RankingData, load
from limbeck.data.dataset import Pair
from limbeck.errors import LimbeckError


class Rows(list[dict[str, Any]]):
    _fingerprint = "1"


def hub(sets: dict[tuple[str, str], dict[str, list[dict[str, Any]]]]) -> SimpleNamespace:
    def load_dataset(name: str, part: str | None = None) -> dict[str, Rows]:
        part = part or "default"
        if (name, part) not in sets:
            raise FileNotFoundError(f"Couldn't find {name}\nlong story")
        return {split: Rows(rows) for split, rows in sets[name, part].items()}

    def get_dataset_config_names(name: str) -> list[str]:
        parts = [part for owner, part in sets if owner == name]
        if not parts:
            raise FileNotFoundError(f"Couldn't find {name}")
        return parts

    return SimpleNamespace(load_dataset=load_dataset, get_dataset_config_names=get_dataset_config_names)


CORPUS = {"corpus": [{"_id": "d1", "title": "T", "text": "a"}, {"_id": "d2", "title": None, "text": "b"}]}
QUERIES = {"queries": [{"_id": "q1", "text": "query"}]}
QRELS = {"test": [{"query-id": "q1", "corpus-id": "d2", "score": 1.0}], "validation": [
    {"query-id": "q1", "corpus-id": "d1", "score": 2}]}  # fmt: skip


@pytest.mark.parametrize("qrels_at", [("o/s", "default"), ("o/s", "qrels"), ("o/s-qrels", "default")])
def test_a_hub_ranking_set_is_read_wherever_its_judgements_are(
    monkeypatch: pytest.MonkeyPatch, qrels_at: tuple[str, str]
) -> None:
    sets = {("o/s", "corpus"): CORPUS, ("o/s", "queries"): QUERIES, qrels_at: QRELS}
    monkeypatch.setitem(sys.modules, "datasets", hub(sets))
    data = load("hf:o/s")
    assert isinstance(data, RankingData)
    assert dict(data.corpus.items()) == {"d1": "T a", "d2": "b"}
    assert data.qrels == {"test": {"q1": {"d2": 1}}, "dev": {"q1": {"d1": 2}}}


def test_other_hub_sets_are_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = {"train": [{"sentence1": "x", "sentence2": "y", "label": 1, "idx": 0}], "validation": [
        {"sentence1": "z", "sentence2": "w", "label": 0, "idx": 0}]}  # fmt: skip
    monkeypatch.setitem(sys.modules, "datasets", hub({("o/glue", "mrpc"): rows, ("o/glue", "cola"): {}}))
    data = load("hf:o/glue:mrpc")
    assert isinstance(data, PairData)
    assert data.splits == {"train": [Pair(("x", "y"), 1)], "dev": [Pair(("z", "w"), 0)]}


def test_mistakes_with_hub_sets_are_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    unknown = {"test": [{"query-id": "q1", "corpus-id": "d9", "score": 1}]}
    odd = {"train": [{"premise": "x", "hypothesis": "y"}]}
    sets = {
        ("o/s", "corpus"): CORPUS,
        ("o/s", "queries"): QUERIES,
        ("o/s", "default"): unknown,
        ("o/p", "default"): odd,
    }
    monkeypatch.setitem(sys.modules, "datasets", hub(sets))
    sets["o/e", "corpus"], sets["o/e", "queries"] = CORPUS, {"queries": [{"_id": "q1", "text": " "}]}
    sets["o/e", "default"] = QRELS
    for name, problem in (
        ("hf:o/e", "hf:o/e: query 'q1' is empty"),
        ("hf:o/s", "hf:o/s: judges document 'd9'"),
        ("hf:o/p", "hf:o/p/train:1: has no two texts in its columns premise, hypothesis"),
        ("hf:o/none", "hf:o/none: Couldn't find o/none; check the name"),
    ):
        with pytest.raises(LimbeckError, match=problem) as caught:
            load(name)
        assert "\n" not in str(caught.value)


class Item(NamedTuple):
    doc_id: str = ""
    query_id: str = ""
    text: str = ""
    relevance: int = 0
    score: float = 0.0

    def default_text(self) -> str:
        return self.text


class IrSet:
    def __init__(self, docs: bool = True, queries: Any = (), qrels: Any = (), scored: Any = ()) -> None:
        self._docs, self._queries, self._qrels, self._scored = docs, queries, qrels, scored

    def has_docs(self) -> bool:
        return self._docs

    def has_queries(self) -> bool:
        return bool(self._queries)

    def has_qrels(self) -> bool:
        return bool(self._qrels)

    def has_scoreddocs(self) -> bool:
        return bool(self._scored)

    def docs_iter(self) -> Iterator[Item]:
        return iter([Item(doc_id="d1", text="T a"), Item(doc_id="d2", text="b")])

    def queries_iter(self) -> Iterator[Item]:
        return iter([Item(query_id=key, text=text) for key, text in self._queries])

    def qrels_iter(self) -> Iterator[Item]:
        return iter([Item(query_id=q, doc_id=d, relevance=g) for q, d, g in self._qrels])

    def scoreddocs_iter(self) -> Iterator[Item]:
        return iter([Item(query_id=q, doc_id=d, score=s) for q, d, s in self._scored])


@pytest.fixture
def ir(monkeypatch: pytest.MonkeyPatch) -> None:
    sets = {
        "ms/dev/small": IrSet(True, [("q1", "query")], [("q1", "d1", 1)], [("q1", "d2", 3.5), ("q1", "d1", 2.0)]),
        "ms/trec-dl-2019": IrSet(True, [("q1", "query")], [("q1", "d1", 3)]),
        "beir/pets": IrSet(True, [("q1", "query"), ("q2", "other")]),
        "beir/pets/train": IrSet(True, [("q1", "query")], [("q1", "d1", 1)]),
        "beir/pets/test": IrSet(True, [("q2", "other")], [("q2", "d2", 1)]),
        "bare": IrSet(True),
        "odd": IrSet(True, [("q1", "query")], [("q1", "d9", 1)]),
        "log": IrSet(False),
    }
    monkeypatch.setitem(sys.modules, "ir_datasets", SimpleNamespace(load=sets.__getitem__, __version__="0"))


@pytest.mark.usefixtures("ir")
def test_an_ir_set_gives_its_split_and_its_candidates() -> None:
    data = load("ir:ms/dev/small")
    assert isinstance(data, RankingData)
    assert dict(data.corpus.items()) == {"d1": "T a", "d2": "b"}
    assert data.qrels == {"dev": {"q1": {"d1": 1}}}
    assert data.runs["dev"]["q1"] == {"d2": 3.5, "d1": 2.0}
    trec = load("ir:ms/trec-dl-2019")
    assert isinstance(trec, RankingData)
    assert trec.qrels == {"test": {"q1": {"d1": 3}}}


@pytest.mark.usefixtures("ir")
def test_an_ir_set_without_judgements_is_read_with_its_subsets() -> None:
    data = load("ir:beir/pets")
    assert isinstance(data, RankingData)
    assert data.qrels == {"train": {"q1": {"d1": 1}}, "test": {"q2": {"d2": 1}}}
    assert dict(data.queries.items()) == {"q1": "query", "q2": "other"}


@pytest.mark.usefixtures("ir")
@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("ir:none", "ir:none: ir_datasets has no such set"),
        ("ir:bare", "ir:bare: has no queries; name one of its subsets"),
        ("ir:odd", "ir:odd: judges document 'd9'"),
        ("ir:log", "ir:log: has no documents"),
    ],
)
def test_mistakes_with_ir_sets_are_one_line(name: str, problem: str) -> None:
    with pytest.raises(LimbeckError, match=problem):
        load(name)


@pytest.mark.parametrize(
    ("name", "module", "remedy"),
    [("hf:a/b", "datasets", "pip install datasets"), ("ir:a", "ir_datasets", "pip install ir-datasets")],
)
def test_a_missing_package_is_named_with_its_remedy(
    monkeypatch: pytest.MonkeyPatch, name: str, module: str, remedy: str
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(LimbeckError, match=f"{name}: needs the package .*; {remedy}$"):
        load(name)
