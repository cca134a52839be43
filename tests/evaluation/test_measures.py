"""Ranking measures against numpy, by hand, and against trec_eval itself."""

from __future__ import annotations

import ir_measures
import numpy as np
import pytest
import pytrec_eval

from limbeck.data import ranked
from limbeck.errors import LimbeckError
from limbeck.evaluation.measure_names import canonical_name, measure_name, parse_measure
from limbeck.evaluation.measures import evaluate_run

NAMES = ["ndcg@10", "ndcg", "mrr@10", "mrr", "recall@5", "map", "map@5", "p@5", "success@3"]


def random_task(seed: int, queries: int = 30, distinct: bool = False) -> tuple[dict, dict]:
    rng = np.random.default_rng(seed)
    documents = [f"d{i}" for i in range(40)]
    run, qrels = {}, {}
    for query in range(queries):
        listed = rng.permutation(40)[: rng.integers(1, 30)]
        scores = rng.permutation(len(listed)) if distinct else rng.integers(0, 6, len(listed)) / 2
        run[f"q{query}"] = {documents[d]: float(s) for d, s in zip(listed, scores, strict=True)}
        judged = rng.permutation(40)[: rng.integers(1, 15)]
        qrels[f"q{query}"] = {
            documents[d]: int(g) for d, g in zip(judged, rng.integers(0, 4, len(judged)), strict=True)
        }
    return run, qrels


def by_hand(name: str, scores: dict[str, float], grades: dict[str, int], level: int) -> float:
    """The textbook formulas over an explicit ranking: score falling, then id falling."""
    base, _, cutoff = name.partition("@")
    order = sorted(sorted(scores, reverse=True), key=lambda document: -scores[document])
    gains = np.array([grades.get(document, 0) for document in order])
    k = int(cutoff) if cutoff else len(gains)
    ideal = np.sort(list(grades.values()))[::-1][: int(cutoff) if cutoff else None]
    if base == "ndcg":
        best = (ideal / np.log2(np.arange(len(ideal)) + 2)).sum()
        return (gains[:k] / np.log2(np.arange(len(gains[:k])) + 2)).sum() / best if best else 0.0
    hits = gains >= level
    relevant = sum(grade >= level for grade in grades.values())
    if base == "mrr":
        return 1 / (1 + np.argmax(hits[:k])) if hits[:k].any() else 0.0
    if base == "recall":
        return hits[:k].sum() / relevant if relevant else 0.0
    if base == "p":
        return hits[:k].sum() / k
    if base == "success":
        return float(hits[:k].any())
    precisions = np.cumsum(hits) / np.arange(1, len(hits) + 1)
    return (precisions * hits)[:k].sum() / relevant if relevant else 0.0


@pytest.mark.parametrize("level", [1, 2])
@pytest.mark.parametrize("name", NAMES)
def test_values_are_the_textbook_formulas_with_ties_and_grades(name: str, level: int) -> None:
    run, qrels = random_task(seed=level)
    result = evaluate_run(run, qrels, [name], relevance_level=level)
    expected = [by_hand(name, run[query], qrels[query], level) for query in sorted(qrels)]
    np.testing.assert_allclose(result.per_query[name], expected, atol=1e-12)
    assert result.means[name] == pytest.approx(np.mean(expected))
    assert result[name.upper()] == result.means[name]


def test_two_documents_worked_out_on_paper() -> None:
    run = {"q": {"a": 3.0, "b": 2.0, "c": 1.0}}
    qrels = {"q": {"b": 2, "c": 1, "z": 1}}
    means = evaluate_run(run, qrels, ["ndcg@10", "mrr@10", "recall@2", "map", "p@2", "success@1"]).means
    ideal = 2 + 1 / np.log2(3) + 1 / 2
    assert means["ndcg@10"] == pytest.approx((2 / np.log2(3) + 1 / 2) / ideal)
    assert means["mrr@10"] == 0.5
    assert means["recall@2"] == pytest.approx(1 / 3)
    assert means["map"] == pytest.approx((1 / 2 + 2 / 3) / 3)
    assert means["p@2"] == 0.5
    assert means["success@1"] == 0.0


def test_values_are_those_of_trec_eval() -> None:
    run, qrels = random_task(seed=3, distinct=True)
    result = evaluate_run(run, qrels, ["ndcg@10", "map", "recall@5", "mrr", "p@5", "success@5"])
    theirs = pytrec_eval.RelevanceEvaluator(
        qrels, {"ndcg_cut.10", "map", "recall.5", "recip_rank", "P.5", "success.5"}
    ).evaluate(run)
    names = {"ndcg@10": "ndcg_cut_10", "map": "map", "recall@5": "recall_5", "mrr": "recip_rank", "p@5": "P_5"}
    for ours, name in [*names.items(), ("success@5", "success_5")]:
        np.testing.assert_allclose(result.per_query[ours], [theirs[query][name] for query in result.query_ids])


def test_a_judged_query_that_the_run_misses_counts_as_zero() -> None:
    run, qrels = {"a": {"x": 1.0}, "c": {}}, {"a": {"x": 1}, "b": {"x": 1}, "c": {"x": 1}}
    result = evaluate_run(run, qrels, ["ndcg@10", "mrr@10"])
    assert result.query_ids == ("a", "b", "c")
    assert result.per_query["mrr@10"].tolist() == [1.0, 0.0, 0.0]
    assert result.means["ndcg@10"] == pytest.approx(1 / 3)
    assert result.unranked == 2


def test_an_unjudged_query_is_left_out() -> None:
    result = evaluate_run({"a": {"x": 1.0}, "extra": {"x": 1.0}}, {"a": {"x": 1}}, ["mrr@10"])
    assert result.query_ids == ("a",)
    assert result.means["mrr@10"] == 1.0


def test_a_judged_query_without_relevant_documents_counts_as_zero_as_in_trec_eval_and_ir_measures() -> None:
    run, qrels = {"a": {"x": 1.0}, "b": {"x": 1.0}}, {"a": {"x": 1}, "b": {"x": 0}}
    names = ["ndcg@10", "map", "recall@5", "mrr@10"]
    result = evaluate_run(run, qrels, names)
    assert result.without_relevant == 1
    assert all(result.per_query[name].tolist() == [1.0, 0.0] for name in names)
    theirs = pytrec_eval.RelevanceEvaluator(qrels, {"ndcg_cut.10", "map"}).evaluate(run)
    assert theirs["b"] == {"map": 0.0, "ndcg_cut_10": 0.0}
    aggregate = ir_measures.calc_aggregate([parse_measure(name) for name in names], qrels, run)
    assert set(aggregate.values()) == {0.5}


def test_relevance_level_two_is_trec_deep_learnings_binary_cut_and_does_not_change_ndcg() -> None:
    run, qrels = {"q": {"a": 3.0, "b": 2.0, "c": 1.0}}, {"q": {"a": 1, "b": 3, "c": 2}}
    one, two = (evaluate_run(run, qrels, ["ndcg@10", "mrr@10", "recall@2", "map"], level) for level in (1, 2))
    assert one["ndcg@10"] == two["ndcg@10"]
    assert (one["mrr@10"], two["mrr@10"]) == (1.0, 0.5)
    assert (one["recall@2"], two["recall@2"]) == (pytest.approx(2 / 3), 0.5)
    assert two["map"] == pytest.approx((1 / 2 + 2 / 3) / 2)


def test_all_measures_break_ties_in_the_same_way_for_any_order_of_the_run() -> None:
    qrels = {"q": {"a": 1}}
    for documents in (["a", "b"], ["b", "a"]):
        run = {"q": dict.fromkeys(documents, 1.0)}
        means = evaluate_run(run, qrels, ["mrr@10", "mrr", "success@1", "map", "p@1"]).means
        assert means == {"mrr@10": 0.5, "mrr": 0.5, "success@1": 0.0, "map": 0.5, "p@1": 0.0}
    assert ranked({"a": 1.0, "c": 1.0, "b": 2.0}) == ["b", "c", "a"]


def test_scores_that_differ_beyond_single_precision_are_distinguished() -> None:
    run = {"q": {"a": 1.0 + 1e-12, "b": 1.0}}
    assert evaluate_run(run, {"q": {"a": 1}}, ["map", "mrr@10"]).means == {"map": 1.0, "mrr@10": 1.0}


@pytest.mark.parametrize(
    ("written", "name", "measure"),
    [
        ("ndcg@10", "ndcg@10", ir_measures.nDCG @ 10),
        ("NDCG@10", "ndcg@10", ir_measures.nDCG @ 10),
        ("MRR@10", "mrr@10", ir_measures.RR @ 10),
        ("rr", "mrr", ir_measures.RR),
        ("recall@100", "recall@100", ir_measures.R @ 100),
        ("R@100", "recall@100", ir_measures.R @ 100),
        ("map", "map", ir_measures.AP),
        ("precision@5", "p@5", ir_measures.P @ 5),
        ("success@5", "success@5", ir_measures.Success @ 5),
    ],
)
def test_names_parse_to_ir_measures_and_back(written: str, name: str, measure: ir_measures.Measure) -> None:
    assert canonical_name(written) == name
    assert parse_measure(written) == measure
    assert measure_name(parse_measure(written)) == name


@pytest.mark.parametrize(
    ("written", "says"),
    [
        ("ndgc@10", "did you mean 'ndcg'"),
        ("bleu", "known: answer_recall, ap, map"),
        ("ndcg@0", "whole number"),
        ("ndcg@ten", "whole number"),
        ("recall", "needs a cutoff"),
        ("", "unknown measure"),
    ],
)
def test_a_wrong_name_gets_one_line_with_the_remedy(written: str, says: str) -> None:
    with pytest.raises(LimbeckError, match=says):
        canonical_name(written)


def test_an_ir_measures_object_without_a_name_here_is_refused() -> None:
    with pytest.raises(LimbeckError, match="is not supported"):
        measure_name(ir_measures.Bpref)


def test_bad_runs_and_qrels_are_named() -> None:
    with pytest.raises(LimbeckError, match="no judged queries"):
        evaluate_run({"q": {"a": 1.0}}, {})
    with pytest.raises(LimbeckError, match="query 'q', document 'a'"):
        evaluate_run({"q": {"a": float("nan")}}, {"q": {"a": 1}})
    with pytest.raises(LimbeckError, match=r"none of the run's queries is judged .*'x'.*'q'"):
        evaluate_run({"x": {"a": 1.0}}, {"q": {"a": 1}})
    with pytest.raises(LimbeckError, match="relevance level 0"):
        evaluate_run({"q": {"a": 1.0}}, {"q": {"a": 1}}, relevance_level=0)
