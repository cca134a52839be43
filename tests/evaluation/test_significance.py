from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from scipy import stats

from limbeck.errors import LimbeckError
from limbeck.evaluation.measures import evaluate_run
from limbeck.evaluation.significance import (
    bootstrap_interval,
    compare_pairs,
    compare_rankings,
    holm,
    randomisation_test,
    t_test,
)


def test_t_test_is_the_formula() -> None:
    differences = np.random.default_rng(0).normal(0.1, 1, 30)
    t = differences.mean() / (differences.std(ddof=1) / np.sqrt(30))
    assert t_test(differences) == pytest.approx(2 * stats.t.sf(abs(t), 29))


def test_few_queries_are_tested_by_all_swaps() -> None:
    differences = [0.5, 0.1, -0.2, 0.3]
    sums = [abs(np.dot(signs, differences)) for signs in product((-1, 1), repeat=4)]
    expected = np.mean(np.array(sums) >= 0.7 - 1e-12)
    assert randomisation_test(differences) == expected
    assert randomisation_test([0.1, 0.2, 0.3]) == 2 / 8  # only all plus and all minus are as extreme


def test_drawn_swaps_come_close_to_all_swaps() -> None:
    differences = np.random.default_rng(1).normal(0.4, 1, 14)
    exact = randomisation_test(differences, samples=2**14)
    drawn = randomisation_test(differences, samples=2**14 - 1, seed=3)
    assert exact != drawn
    assert drawn == pytest.approx(exact, abs=0.015)


def test_under_the_null_five_percent_are_called_significant() -> None:
    rng = np.random.default_rng(2)
    draws = rng.normal(0, 1, size=(600, 40)) * rng.exponential(1, size=40)  # queries of unlike difficulty
    for test in (t_test, lambda values: randomisation_test(values, samples=500)):
        rejected = np.mean([test(values) < 0.05 for values in draws])
        assert 0.02 < rejected < 0.085
    covered = np.mean([low < 0 < high for low, high in (bootstrap_interval(v, samples=500) for v in draws)])
    assert 0.90 < covered < 0.98


def test_a_real_difference_is_found() -> None:
    draws = np.random.default_rng(3).normal(0.5, 1, size=(100, 50))  # the t-test's power here is 0.93
    for test in (t_test, lambda values: randomisation_test(values, samples=500)):
        assert np.mean([test(values) < 0.05 for values in draws]) > 0.8


def test_bootstrap_interval_is_close_to_the_normal_one_and_depends_only_on_the_seed() -> None:
    differences = np.random.default_rng(4).normal(0.2, 1, 400)
    low, high = bootstrap_interval(differences, seed=1)
    half = 1.96 * differences.std() / np.sqrt(400)
    assert (low, high) == pytest.approx((differences.mean() - half, differences.mean() + half), abs=0.01)
    assert bootstrap_interval(differences, seed=1) == (low, high)
    assert bootstrap_interval(differences, seed=2) != (low, high)
    narrow = bootstrap_interval(differences, seed=1, confidence=0.5)
    assert low < narrow[0] < narrow[1] < high


def test_two_equal_systems_do_not_differ() -> None:
    assert t_test(np.zeros(10)) == 1.0
    assert randomisation_test(np.zeros(10)) == 1.0
    assert randomisation_test(np.zeros(50)) == 1.0
    assert bootstrap_interval(np.zeros(10)) == (0.0, 0.0)


def test_rankings_are_compared_query_by_query() -> None:
    qrels = {f"q{i}": {"a": 1} for i in range(12)}
    good = {f"q{i}": {"a": 2.0, "b": 1.0} for i in range(12)}
    mixed = {f"q{i}": {"a": 2.0 if i < 3 else 0.0, "b": 1.0} for i in range(12)}
    ours, theirs = (evaluate_run(run, qrels, ["mrr@10"]) for run in (good, mixed))
    found = compare_rankings(ours, theirs, "MRR@10")
    assert found.record == (9, 3, 0)
    assert (found.system, found.baseline, found.difference) == (1.0, 0.625, 0.375)
    assert found.p_values["randomisation"] == 2 / 2**9
    assert found.low < 0.375 < found.high
    line = str(found)
    assert "\n" not in line
    assert line.startswith("mrr@10 1.0000 against 0.6250: +0.3750 [")
    assert line.endswith("n = 12; won 9, tied 3, lost 0")
    reverse = compare_rankings(theirs, ours, "mrr@10")
    assert reverse.record == (0, 3, 9)
    assert reverse.p_values == found.p_values


def test_rankings_of_other_queries_or_measures_are_refused() -> None:
    one = evaluate_run({"a": {"x": 1.0}, "b": {"x": 1.0}}, {"a": {"x": 1}, "b": {"x": 1}}, ["mrr@10"])
    other = evaluate_run({"a": {"x": 1.0}}, {"a": {"x": 1}}, ["mrr@10"])
    with pytest.raises(LimbeckError, match="different queries"):
        compare_rankings(one, other, "mrr@10")
    with pytest.raises(LimbeckError, match="ndcg@10 was not computed"):
        compare_rankings(one, one, "ndcg@10")
    with pytest.raises(LimbeckError, match="1 query is too few"):
        compare_rankings(other, other, "mrr@10")


def noisy(labels: np.ndarray, noise: float, rng: np.random.Generator) -> np.ndarray:
    return (2.0 * labels - 1) + noise * rng.normal(size=len(labels))


@pytest.mark.parametrize("measure", ["auc", "accuracy", "spearman"])
def test_pair_systems_of_equal_quality_rarely_differ_significantly_and_unequal_ones_mostly(measure: str) -> None:
    # Accuracies of 0.75 and 0.60 on 200 pairs differ by 3.2 standard errors: by the normal law a power of 0.9.
    rng = np.random.default_rng(5)
    equal, unequal = [], []
    for _ in range(150):
        labels = rng.integers(0, 2, 200)
        system = noisy(labels, 1.5, rng)
        for found, noise in ((equal, 1.5), (unequal, 4.0)):
            compared = compare_pairs(system, noisy(labels, noise, rng), labels, measure, samples=200)
            found.append(compared.p_values["paired bootstrap"] < 0.05)
    assert 0.005 < np.mean(equal) < 0.11
    assert np.mean(unequal) > 0.8


def test_accuracy_of_pairs_has_the_interval_that_resampling_the_hits_gives() -> None:
    rng = np.random.default_rng(6)
    labels = rng.integers(0, 2, 500)
    ours, theirs = noisy(labels, 1.0, rng), noisy(labels, 2.0, rng)
    found = compare_pairs(ours, theirs, labels, "accuracy")
    hits = ((ours > 0) == labels).astype(float) - ((theirs > 0) == labels)
    assert found.difference == pytest.approx(hits.mean())
    assert (found.low, found.high) == pytest.approx(bootstrap_interval(hits), abs=0.005)
    assert found.record is None
    assert str(found).endswith("n = 500")
    assert compare_pairs(ours, theirs, labels, "accuracy") == found


def test_classes_and_identical_systems_are_compared() -> None:
    rng = np.random.default_rng(7)
    labels, logits = rng.integers(0, 3, 60), rng.normal(size=(60, 3))
    found = compare_pairs(logits, logits, labels, "f1", samples=200)
    assert (found.difference, found.low, found.high) == (0.0, 0.0, 0.0)
    assert found.p_values == {"paired bootstrap": 1.0}


def test_pairs_that_cannot_be_compared_are_refused() -> None:
    with pytest.raises(LimbeckError, match="same score"):
        compare_pairs([1.0, 2.0, 3.0], [1.0, 1.0, 1.0], [0, 1, 1], "pearson")
    with pytest.raises(LimbeckError, match="compare systems of one task"):
        compare_pairs(np.eye(3), [1.0, 2.0, 3.0], [0, 1, 1], "auc")
    with pytest.raises(LimbeckError, match="resamples are too few"):
        compare_pairs([1.0, 2.0], [2.0, 1.0], [0, 1], "auc", samples=0)
    with pytest.raises(LimbeckError, match=r"confidence of 95"):
        bootstrap_interval([0.1, 0.2], confidence=95)


def test_holm_is_the_textbook_example() -> None:
    np.testing.assert_allclose(holm([0.01, 0.04, 0.03, 0.005]), [0.03, 0.06, 0.06, 0.02])
    np.testing.assert_allclose(holm([0.6, 0.9]), [1.0, 1.0])
    assert holm([0.03]).tolist() == [0.03]
