"""Runs from matchers, against scores worked out one pair at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from limbeck.data.dataset import RankingData, Texts
from limbeck.errors import LimbeckError
from limbeck.evaluation import rank
from limbeck.evaluation.candidates import first_of, with_judged, with_random
from limbeck.evaluation.measures import evaluate_run
from limbeck.evaluation.rank import rerank, retrieve
from limbeck.matchers.encoding import Encoding
from limbeck.matchers.interactions import interaction_named
from limbeck.progress import reporting
from limbeck.search.sparse import bm25_candidates
from limbeck.stores.encodings import EncodingStore


def letters(texts: list[str]) -> np.ndarray:
    """A vector per text: how often each letter occurs."""
    return np.array([[text.count(letter) for letter in "abcdefghijklmnopqrstuvwxyz"] for text in texts], np.float32)


class LetterDualEncoder:
    def __init__(self, similarity: str = "dot") -> None:
        self.interaction = interaction_named(similarity, {})
        self.encoded: list[str] = []

    def encoding(self, position: int) -> Encoding:
        return Encoding(26)

    def encode(self, texts: list[str], position: int) -> np.ndarray:
        self.encoded += texts if position == 1 else []
        return letters(texts)

    def score(self, pairs: list[tuple[str, str]]) -> np.ndarray:
        raise AssertionError("documents are to be encoded, not scored pair by pair")


class LetterCrossEncoder:
    def score(self, pairs: list[tuple[str, str]]) -> np.ndarray:
        return np.array([similarity(query, document, "dot") for query, document in pairs])


def similarity(query: str, document: str, kind: str) -> float:
    (left,), (right,) = letters([query]), letters([document])
    return float(left @ right / (np.linalg.norm(left) * np.linalg.norm(right) if kind == "cosine" else 1))


@pytest.fixture
def data() -> RankingData:
    rng = np.random.default_rng(0)
    words = ["".join(rng.choice(list("abcdefgh"), 5)) for _ in range(60)]
    corpus = {f"d{i}": " ".join(rng.choice(words, 6)) for i in range(50)}
    queries = {f"q{i}": " ".join(rng.choice(words, 2)) for i in range(7)}
    return RankingData("letters", Texts.from_dict(corpus), Texts.from_dict(queries), {"test": {}})


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rank, "_TEXTS", 8)
    monkeypatch.setattr(rank, "_PAIRS", 5)


@pytest.fixture
def lists(data: RankingData) -> dict[str, list[str]]:
    rng = np.random.default_rng(1)
    return {query: [f"d{i}" for i in rng.permutation(50)[: rng.integers(1, 20)]] for query in data.queries}


@pytest.mark.parametrize("kind", ["dot", "cosine"])
def test_reranking_scores_the_candidates_and_nothing_else(data: RankingData, lists: dict, kind: str) -> None:
    run = rerank(LetterDualEncoder(kind), data, lists)
    assert {query: set(scores) for query, scores in run.items()} == {query: set(ids) for query, ids in lists.items()}
    for query, scores in run.items():
        assert list(scores.values()) == sorted(scores.values(), reverse=True)
        for document, score in scores.items():
            assert score == pytest.approx(similarity(data.queries[query], data.corpus[document], kind), abs=1e-5)


def test_reranking_encodes_each_document_once(data: RankingData, lists: dict) -> None:
    matcher = LetterDualEncoder()
    rerank(matcher, data, lists)
    wanted = {document for ids in lists.values() for document in ids}
    assert sorted(matcher.encoded) == sorted(data.corpus[document] for document in wanted)


def test_a_matcher_that_cannot_encode_ahead_scores_pair_by_pair(data: RankingData, lists: dict) -> None:
    assert rerank(LetterCrossEncoder(), data, lists) == rerank(LetterDualEncoder(), data, lists)


def test_a_run_serves_as_candidates_and_empty_lists_stay_empty(data: RankingData) -> None:
    run = rerank(LetterDualEncoder(), data, {"q1": {"d3": 0.5, "d4": 0.1}, "q2": []})
    assert set(run["q1"]) == {"d3", "d4"}
    assert run["q2"] == {}
    assert rerank(LetterDualEncoder(), data, {}) == {}
    assert rerank(LetterCrossEncoder(), data, {"q2": []}) == {"q2": {}}


@pytest.mark.parametrize("kind", ["dot", "cosine"])
def test_retrieval_finds_the_best_of_the_whole_corpus(data: RankingData, kind: str) -> None:
    run = retrieve(LetterDualEncoder(kind), data, ["q3", "q5"], k=7)
    assert list(run) == ["q3", "q5"]
    for query, scores in run.items():
        everything = {d: similarity(data.queries[query], data.corpus[d], kind) for d in data.corpus}
        assert list(scores.values()) == pytest.approx(sorted(everything.values(), reverse=True)[:7], abs=1e-5)
        assert all(score == pytest.approx(everything[document], abs=1e-5) for document, score in scores.items())
    assert len(retrieve(LetterDualEncoder(), data, ["q3"], k=1000)["q3"]) == 50
    assert retrieve(LetterDualEncoder(), data, []) == {}


def test_retrieval_takes_vectors_from_the_store_and_adds_what_it_lacks(data: RankingData, tmp_path: Path) -> None:
    store = EncodingStore.open(tmp_path / "store", {"model": "letters"}, dim=26)
    expected = retrieve(LetterDualEncoder(), data, ["q1", "q2"], k=9)
    first, second = LetterDualEncoder(), LetterDualEncoder()
    assert retrieve(first, data, ["q1", "q2"], k=9, store=store) == expected
    assert len(first.encoded) == len(set(first.encoded)) > 0
    assert retrieve(second, data, ["q1", "q2"], k=9, store=store) == expected
    assert second.encoded == []


def test_progress_is_counted_in_texts_for_any_blocks(data: RankingData) -> None:
    seen: dict[str, list[int]] = {}

    class Reporter:
        @contextmanager
        def task(self, label: str, total: int | None) -> Iterator[Callable[[int], None]]:
            seen[label] = [total or 0]
            yield seen[label].append

        def say(self, message: str) -> None:
            raise AssertionError(message)

    with reporting(Reporter()):
        retrieve(LetterDualEncoder(), data, [f"q{row % 7}" for row in range(20)], k=3)
    total, *steps = seen["Encoding documents"]
    assert total == sum(steps) == 50 and len(steps) > 1


def test_mistakes_are_named(data: RankingData) -> None:
    class Diverged(LetterCrossEncoder):
        def score(self, pairs: list[tuple[str, str]]) -> np.ndarray:
            return np.full(len(pairs), np.nan)

    class ThreeClasses(LetterCrossEncoder):
        def score(self, pairs: list[tuple[str, str]]) -> np.ndarray:
            return np.zeros((len(pairs), 3))

    with pytest.raises(LimbeckError, match="retrieval requires a dual encoder"):
        retrieve(LetterCrossEncoder(), data, ["q1"])
    with pytest.raises(LimbeckError, match="query 'q1', document 'd2' is not finite"):
        rerank(Diverged(), data, {"q1": ["d2"]})
    with pytest.raises(LimbeckError, match="gave 3 scores for each pair"):
        rerank(ThreeClasses(), data, {"q1": ["d2"]})
    with pytest.raises(LimbeckError, match="unknown id 'nowhere'"):
        rerank(LetterCrossEncoder(), data, {"q1": ["nowhere"]})
    with pytest.raises(LimbeckError, match="unknown id 'nobody'"):
        retrieve(LetterDualEncoder(), data, ["nobody"])


def test_the_best_of_a_run_are_taken_and_a_query_that_it_misses_has_none() -> None:
    run = {"a": {"x": 1.0, "y": 3.0, "z": 2.0}, "other": {"x": 1.0}}
    assert first_of(run, ["a", "b"], 2) == {"a": ["y", "z"], "b": []}


def test_missing_judged_documents_are_added_at_the_front() -> None:
    lists = with_judged({"a": {"x": 2.0, "y": 1.0}, "b": ["y"]}, {"a": {"z": 1, "x": 2, "w": 0}, "other": {"v": 1}})
    assert lists == {"a": ["z", "x", "y"], "b": ["y"]}


def test_random_documents_lengthen_each_list_the_same_way_for_the_same_seed(data: RankingData) -> None:
    lists = {"q1": ["d1", "d2"], "q2": ["d1"]}
    longer = with_random(lists, data.corpus, 20, seed=1)
    assert longer["q1"][:2] == ["d1", "d2"]
    assert 20 <= len(longer["q1"]) <= 22
    assert len(set(longer["q1"])) == len(longer["q1"])
    assert longer["q1"][2:] != longer["q2"][1:]
    assert with_random({"q1": ["d1", "d2"]}, data.corpus, 20, seed=1)["q1"] == longer["q1"]
    assert with_random(lists, data.corpus, 20, seed=2) != longer
    assert len(with_random(lists, data.corpus, 1000)["q2"]) == 50


@pytest.mark.parametrize("kind", ["dot", "cosine"])
def test_a_real_dual_encoder_is_ranked_by_its_own_scores(data: RankingData, tiny_bert: str, kind: str) -> None:
    from sentence_transformers import SentenceTransformer

    from limbeck.matchers.dual_encoder import DualEncoder

    matcher = DualEncoder(SentenceTransformer(tiny_bert, device="cpu", similarity_fn_name=kind))
    documents = list(data.corpus)
    expected = matcher.score([(data.queries["q1"], data.corpus[document]) for document in documents])
    own = dict(zip(documents, expected.tolist(), strict=True))
    assert rerank(matcher, data, {"q1": documents})["q1"] == pytest.approx(own, rel=1e-4)
    found = retrieve(matcher, data, ["q1"], k=50)["q1"]
    assert found == pytest.approx(own, rel=1e-4)
    assert list(found.values()) == sorted(found.values(), reverse=True)


@pytest.mark.full
def test_minilm_has_its_published_value_on_scifact(
    shared_data: Callable[[str], Path], minilm: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from limbeck.data import load
    from limbeck.matchers import load as load_matcher

    monkeypatch.setattr(rank, "_TEXTS", 4096)
    data = load(shared_data("scifact"))
    assert isinstance(data, RankingData)
    qrels = data.judgements("test")
    found = evaluate_run(retrieve(load_matcher(minilm), data, list(qrels)), qrels, ["ndcg@10"])
    assert found["ndcg@10"] == pytest.approx(0.645, abs=0.01)


def test_bm25_on_scifact_agrees_with_published_values(shared_data: Callable[[str], Path]) -> None:
    """BEIR reports 0.665 with title and text as two fields; Anserini 0.679 with both in one, as here."""
    from limbeck.data import load

    data = load(shared_data("scifact"))
    assert isinstance(data, RankingData)
    qrels = data.judgements("test")
    found = evaluate_run(bm25_candidates(data, list(qrels), 1000), qrels, ["ndcg@10", "recall@100"])
    assert found["ndcg@10"] == pytest.approx(0.665, abs=0.01)
    assert found["ndcg@10"] == pytest.approx(0.679, abs=0.01)
    assert found["recall@100"] == pytest.approx(0.925, abs=0.01)
