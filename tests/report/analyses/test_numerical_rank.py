import numpy as np
import pytest

from limbeck.errors import LimbeckError
from limbeck.report.analyses import dimensions_needed, numerical_rank, numerical_rank_section, score_matrix
from tests.report.analyses.helpers import comes_back, shown


def of_rank(rank: int, queries: int = 30, documents: int = 50, seed: int = 0) -> np.ndarray:
    draw = np.random.default_rng(seed)
    return draw.normal(size=(queries, rank)) @ draw.normal(size=(rank, documents))


def with_values(values: list[float], queries: int = 12, documents: int = 20) -> np.ndarray:
    """A matrix with these singular values, its rows centred already."""
    draw = np.random.default_rng(2)
    left, _ = np.linalg.qr(draw.normal(size=(queries, len(values))))
    wide = draw.normal(size=(documents, len(values)))
    right, _ = np.linalg.qr(wide - wide.mean(axis=0))
    return left @ np.diag(values) @ right.T


def test_vectors_of_a_dual_encoder_leave_their_size_as_the_rank() -> None:
    draw = np.random.default_rng(0)
    queries, documents = draw.normal(size=(30, 6)).astype(np.float32), draw.normal(size=(50, 6)).astype(np.float32)
    result = numerical_rank(queries @ documents.T)  # single precision leaves noise, which is no rank
    assert result.raw.rank == result.centred.rank == 6


def test_a_shift_of_each_query_is_one_dimension_of_the_raw_scores_and_none_of_the_centred() -> None:
    scores = of_rank(4)
    shifted = scores + np.random.default_rng(1).normal(700, 10, size=(30, 1))
    result = numerical_rank(shifted)
    assert (result.raw.rank, result.centred.rank) == (5, 4)
    assert result.raw.energy[0.99] == 1  # the shift is nearly all there is
    centred = scores - scores.mean(axis=1, keepdims=True)
    values = np.linalg.svd(centred, compute_uv=False)
    assert result.centred.singular_values == pytest.approx(values.tolist(), abs=1e-9)


def test_energies_and_effective_rank_by_hand() -> None:
    # Squares 90, 5, 4, 0.9, 0.1: 90%, 95%, 99%, 99.9% and all of a hundred.
    values = [90**0.5, 5**0.5, 2.0, 0.9**0.5, 0.1**0.5]
    spectrum = numerical_rank(with_values(values), k=3).centred
    assert spectrum.singular_values[:5] == pytest.approx(values)
    assert spectrum.energy == {0.9: 1, 0.95: 2, 0.99: 3, 0.999: 4}
    shares = np.array(values) / sum(values)
    assert spectrum.effective == pytest.approx(np.exp(-(shares * np.log(shares)).sum()))


def test_singular_values_are_counted_above_a_fraction_of_the_largest() -> None:
    spectrum = numerical_rank(with_values([1000.0, 101.0, 99.0, 1.1, 0.9]), k=3).centred
    assert spectrum.above == {1e-1: 2, 1e-2: 3, 1e-3: 4}
    assert spectrum.rank == 5


def test_equal_singular_values_are_as_many_effective_dimensions() -> None:
    assert numerical_rank(with_values([3.0] * 7), k=3).centred.effective == pytest.approx(7)


def test_the_error_of_a_truncation_is_what_the_dropped_values_hold() -> None:
    matrix = with_values([3.0, 2.0, 1.0])
    found = {each.rank: each for each in numerical_rank(matrix, k=3, ranks=[1, 2, 3]).centred.truncations}
    assert sorted(found) == [1, 2, 3, 12]
    assert found[1].error == pytest.approx(((4 + 1) / 14) ** 0.5)
    assert found[2].error == pytest.approx((1 / 14) ** 0.5)
    assert found[2].rms == pytest.approx((1 / matrix.size) ** 0.5)
    assert found[3].error == pytest.approx(0, abs=1e-12)


def test_the_agreement_of_a_truncation_is_that_of_its_top_k() -> None:
    matrix = of_rank(8)
    centred = matrix - matrix.mean(axis=1, keepdims=True)
    left, values, right = np.linalg.svd(centred, full_matrices=False)
    smaller = (left[:, :3] * values[:3]) @ right[:3]
    shared = [
        len({*np.argsort(-full)[:5]} & {*np.argsort(-part)[:5]}) / 5
        for full, part in zip(centred, smaller, strict=True)
    ]
    found = {each.rank: each.top_k for each in numerical_rank(matrix, k=5, ranks=[3, 8]).centred.truncations}
    assert found[3] == pytest.approx(np.mean(shared))
    assert found[3] < 1
    assert found[8] == found[30] == 1


def test_any_of_equal_scores_may_be_in_the_top() -> None:
    scores = np.random.default_rng(0).integers(0, 3, size=(20, 40))  # many ties at the border of the top
    assert numerical_rank(scores, k=5).centred.truncations[-1].top_k == 1


def test_ranks_are_tried_up_to_the_full_one() -> None:
    ranks = [each.rank for each in numerical_rank(of_rank(8)).raw.truncations]
    assert ranks == [1, 2, 3, 4, 6, 8, 12, 16, 24, 30]
    assert dimensions_needed(numerical_rank(of_rank(6)).centred) <= 6
    assert dimensions_needed(numerical_rank(of_rank(6)).centred, agreement=1.1) == 30


def test_the_section_answers_in_words_and_warns_of_a_matrix_that_is_too_small() -> None:
    small, large = numerical_rank(of_rank(20, 24, 40)), numerical_rank(of_rank(3, 60, 80) - 9)
    assert comes_back(large)
    text = shown(numerical_rank_section(large))
    assert "3 dimensions are enough to keep 95% of the teacher's top 10" in text
    assert "60 queries by 80 documents" in text
    assert "lower bounds" not in text
    assert "lower bounds" in shown(numerical_rank_section(small))
    assert "--add rank --set evaluation.rank_queries=" in shown(numerical_rank_section(small))


def test_a_run_of_all_pairs_becomes_a_matrix_with_documents_in_order() -> None:
    matrix = score_matrix({"q1": {"b": 2.0, "a": 1.0}, "q2": {"a": 3.0, "b": 4.0}})
    assert matrix.tolist() == [[1.0, 2.0], [3.0, 4.0]]


@pytest.mark.parametrize(
    ("run", "message"),
    [
        ({}, "the run is empty"),
        ({"q1": {"a": 1.0, "b": 2.0}, "q2": {"a": 1.0}}, "query 'q2' has no score for document 'b'; score every query"),
        ({"q1": {"a": 1.0}, "q2": {"a": 1.0, "b": 1.0}}, "query 'q2' has scores for more documents"),
        ({"q1": {"a": float("nan")}}, "query 'q1', document 'a' is not a finite number"),
    ],
)
def test_a_run_with_gaps_is_not_a_matrix(run: dict[str, dict[str, float]], message: str) -> None:
    with pytest.raises(LimbeckError, match=message):
        score_matrix(run)


@pytest.mark.parametrize(
    ("scores", "options", "message"),
    [
        (np.ones(4), {}, r"two axes, not the shape \[4\]"),
        (np.ones((1, 40)), {}, "1 queries by 40 documents are too few"),
        (np.full((4, 40), np.nan), {}, "not finite numbers"),
        (np.ones((4, 40)) * 7.3, {}, "the same score for a query"),
        (of_rank(2, 5, 10), {"k": 10}, "use k from 1 to 9"),
        (of_rank(2, 5, 40), {"ranks": [0, 2]}, "rank 0 is not defined"),
    ],
)
def test_a_matrix_without_a_rank_is_refused(scores: np.ndarray, options: dict, message: str) -> None:
    with pytest.raises(LimbeckError, match=message):
        numerical_rank(scores, **options)
