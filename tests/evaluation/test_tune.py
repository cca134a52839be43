"""Alpha is set by measuring: the curve is what a loop computes, the choice is its best, the test is cross-fitted."""

from __future__ import annotations

import math
from dataclasses import replace
from html import escape

import numpy as np
import pytest

from limbeck.errors import LimbeckError
from limbeck.evaluation.significance import Comparison
from limbeck.evaluation.tune import FusionPoint, cross_fitted, finer_grid, first_grid, tune_alpha
from limbeck.report.fusion import _verb, finding, fusion_report

Scores = dict[int, float]


def listed(scores: Scores) -> tuple[np.ndarray, np.ndarray]:
    rows = sorted(scores, key=lambda row: (-scores[row], row))
    return np.array(rows, dtype=np.int64), np.array([scores[row] for row in rows], dtype=np.float32)


def rows_of(ids) -> np.ndarray:
    """Documents d0, d1, ... stand in rows 0, 1, ...; no other is indexed."""
    return np.array([int(key[1:]) if key[0] == "d" else -1 for key in ids], dtype=np.int64)


def ndcg(rows: list[int], grades: dict[str, int], k: int = 10) -> float:
    gains = [grades.get(f"d{row}", 0) / math.log2(place + 2) for place, row in enumerate(rows[:k])]
    ideal = sorted(grades.values(), reverse=True)[:k]
    return sum(gains) / sum(grade / math.log2(place + 2) for place, grade in enumerate(ideal))


def eq7(dense: Scores, sparse: Scores, alpha: float) -> list[int]:
    scores = {
        row: alpha * sparse.get(row, min(sparse.values())) + dense.get(row, min(dense.values()))
        for row in {*dense, *sparse}
    }
    return sorted(scores, key=lambda row: (-scores[row], row))


def complementary(queries: int, seed: int = 0) -> tuple[dict, dict]:
    """Each part sees the relevant document with noise of its own; sparse scores are 20 times as large."""
    random = np.random.default_rng(seed)
    raw, qrels = {}, {}
    for number in range(queries):
        relevant = int(random.integers(0, 40))
        parts = []
        for scale in (1.0, 20.0):
            scores = random.normal(size=40)
            scores[relevant] += 1.5
            kept = np.argsort(-scores)[:30]
            parts.append({int(row): float(np.float32(scale * (scores[row] + 5))) for row in kept})
        raw[f"q{number}"], qrels[f"q{number}"] = tuple(parts), {f"d{relevant}": 1}
    return raw, qrels


def as_lists(raw: dict) -> dict:
    return {query: tuple(listed(scores) for scores in parts) for query, parts in raw.items()}


def test_the_curve_is_the_mean_of_eq_7_over_the_queries() -> None:
    raw, qrels = complementary(30)
    found = tune_alpha(as_lists(raw), qrels, rows_of, alphas=[0.05, 0.0, 0.5, 0.05])
    assert [point.alpha for point in found.curve] == [0.0, 0.05, 0.5]
    for alpha, value in found.curve:
        expected = np.mean([ndcg(eq7(*parts, alpha), qrels[query]) for query, parts in raw.items()])
        assert value == pytest.approx(expected, abs=1e-12)
    dense = np.mean([ndcg(listed(parts[0])[0].tolist(), qrels[query]) for query, parts in raw.items()])
    sparse = np.mean([ndcg(listed(parts[1])[0].tolist(), qrels[query]) for query, parts in raw.items()])
    assert (found.dense, found.sparse) == pytest.approx((dense, sparse))
    assert found.alpha == max(found.curve, key=lambda point: point.value).alpha


def test_parts_with_different_errors_are_better_together_and_alpha_finds_their_scales() -> None:
    raw, qrels = complementary(300)
    found = tune_alpha(as_lists(raw), qrels, rows_of)
    assert 0.02 <= found.alpha <= 0.12  # 1/20 weighs both alike, as their noise is
    assert found.value > found.rrf > max(found.dense, found.sparse)
    assert found.against_rrf.baseline == found.rrf and found.against_rrf.system == found.comparison.system
    assert found.comparison.low > 0 and found.comparison.p_values["randomisation"] < 0.01
    assert found.comparison.system <= found.value
    assert found.value == max(value for _, value in found.curve)


def test_an_alpha_beats_reciprocal_ranks_only_where_the_queries_show_it() -> None:
    raw, qrels = complementary(12)
    assert not tune_alpha(as_lists(raw), qrels, rows_of).beats_rrf
    noisy = {query: (dense, dict.fromkeys(range(40, 60), 1.0)) for query, (dense, _) in complementary(200)[0].items()}
    found = tune_alpha(as_lists(noisy), complementary(200)[1], rows_of)
    assert found.beats_rrf and found.dense > found.rrf


def test_a_hand_worked_case() -> None:
    # q1: the relevant row 2 is second in dense, first in sparse; it wins once alpha * (4 - 2) > 1.0 - 0.5.
    # q2: the relevant row 3 is first in dense; row 4 overtakes once alpha * (8 - 1) > 3.5.
    lists = {
        "q1": (listed({1: 1.0, 2: 0.5}), listed({2: 4.0, 1: 2.0})),
        "q2": (listed({3: 4.0, 4: 0.5}), listed({4: 8.0, 3: 1.0})),
    }
    qrels = {"q1": {"d2": 1}, "q2": {"d3": 1}}
    found = tune_alpha(lists, qrels, rows_of, "mrr@10", [0.0, 0.2, 0.3, 0.4, 0.6])
    assert found.curve == tuple(
        FusionPoint(*pair) for pair in ((0, 0.75), (0.2, 0.75), (0.3, 1), (0.4, 1), (0.6, 0.75))
    )
    assert (found.alpha, found.dense, found.sparse, found.rrf) == (0.4, 0.75, 0.75, 0.75)


def test_equal_scores_are_measured_in_the_order_that_search_shows() -> None:
    lists = {f"q{n}": (listed({1: 1.0, 2: 1.0}), listed({1: 3.0, 2: 3.0})) for n in range(2)}
    assert tune_alpha(lists, {"q0": {"d1": 1}, "q1": {"d1": 1}}, rows_of, "mrr@10", [0.1]).value == 1.0


def test_a_judged_document_that_is_not_indexed_counts_as_missed() -> None:
    lists = {f"q{n}": (listed({1: 1.0}), listed({1: 3.0})) for n in range(2)}
    qrels = {f"q{n}": {"d1": 1, "elsewhere": 1} for n in range(2)}
    assert tune_alpha(lists, qrels, rows_of, "recall@10", [0.1]).value == 0.5


def test_the_grid_is_around_the_ratio_of_the_scales() -> None:
    lists = {"a": (listed({1: 0.9, 2: 0.4}), listed({1: 12.0, 2: 2.0})), "b": (listed({1: 1.0}), listed({}))}
    assert first_grid(lists) == [0, *(step * 10.0**d for d in range(-4, 1) for step in (1, 2, 5))]  # 0.5 / 10
    assert first_grid({"b": lists["b"]})[:4] == [0, 0.01, 0.02, 0.05]


def test_the_grid_is_refined_between_the_neighbours_of_the_best() -> None:
    grid = [0.0, 0.1, 0.2, 0.5]
    assert min(finer_grid(grid, 0.2)) > 0.1 and max(finer_grid(grid, 0.2)) < 0.5
    assert not set(grid) & set(finer_grid(grid, 0.2))
    assert min(finer_grid(grid, 0.0)) >= 0.01 and max(finer_grid(grid, 0.0)) < 0.1
    assert min(finer_grid(grid, 0.5)) > 0.2 and max(finer_grid(grid, 0.5)) == 5.0


def test_of_a_plateau_the_middle_is_chosen() -> None:
    lists = {f"q{n}": (listed({1: 1.0}), listed({1: 3.0})) for n in range(2)}
    found = tune_alpha(lists, {"q0": {"d1": 1}, "q1": {"d1": 1}}, rows_of, alphas=[0.1, 0.2, 0.3])
    assert found.alpha == 0.2


def test_cross_fitting_takes_no_credit_for_the_choice() -> None:
    alphas = list(np.arange(20.0))
    honest, flattered = [], []
    for seed in range(30):
        noise = np.random.default_rng(seed).normal(size=(20, 40))
        honest.append(cross_fitted(alphas, noise).mean())
        flattered.append(noise.mean(axis=1).max())
    assert np.mean(flattered) > 0.25
    assert abs(np.mean(honest)) < 0.1
    clear = np.zeros((20, 40))
    clear[7] = 1.0
    assert cross_fitted(alphas, clear).tolist() == [1.0] * 40


def test_bad_input_raises_an_error() -> None:
    raw, qrels = complementary(3)
    with pytest.raises(LimbeckError, match="alpha is nan"):
        tune_alpha(as_lists(raw), qrels, rows_of, alphas=[0.1, math.nan])
    with pytest.raises(LimbeckError, match="1 query is too few to tune alpha"):
        tune_alpha({"q0": as_lists(raw)["q0"]}, qrels, rows_of)
    with pytest.raises(LimbeckError, match="unknown measure 'ndgc@10'"):
        tune_alpha(as_lists(raw), qrels, rows_of, "ndgc@10")


def test_the_page_shows_the_curve_and_what_it_means(tmp_path) -> None:
    raw, qrels = complementary(100)
    found = tune_alpha(as_lists(raw), qrels, rows_of)
    page = fusion_report(found, "index", "data <i>", "dev", tmp_path / "tune.html").read_text()
    assert "beats its" in finding(found) and escape(finding(found)) in page
    assert "data &lt;i&gt;" in page and "100 queries of dev" in page and "<svg" in page
    assert "http://" not in page.replace("http://www.w3.org", "") and "https://" not in page
    for alpha, _ in found.curve:
        assert f'data-value="{alpha:g}"' in page
    only_zero = tune_alpha(as_lists(raw), qrels, rows_of, alphas=[0.0])
    assert "<svg" not in fusion_report(only_zero, "i", "d", "dev", tmp_path / "zero.html").read_text()


def test_the_sentence_claims_no_difference_that_the_test_does_not_show() -> None:
    """On a handful of queries a bootstrap interval may exclude 0 where p is 0.06; the index keeps its default then."""
    test = Comparison("ndcg@10", 6, 0.8, 0.4, low=0.2, high=0.7, confidence=0.95, p_values={"randomisation": 0.06})
    assert _verb(test) == "does not differ significantly from"
    assert _verb(replace(test, p_values={"randomisation": 0.01})) == "beats"
    assert _verb(replace(test, low=-0.7, high=-0.2, p_values={"randomisation": 0.01})) == "loses to"
