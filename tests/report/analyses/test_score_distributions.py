import numpy as np
import pytest

from limbeck.data.dataset import Run
from limbeck.errors import LimbeckError
from limbeck.report.analyses import score_distributions, score_distributions_section
from tests.report.analyses.helpers import comes_back, shown

QRELS = {"q1": {"a": 1}, "q2": {"b": 2, "a": 0}}
RUN = {"q1": {"a": 9.0, "b": 3.0, "c": 0.0}, "q2": {"a": 101.0, "b": 105.0}}


def test_raw_scores_are_those_of_positives_and_of_all_others() -> None:
    (model,) = score_distributions({"m": RUN}, QRELS).models
    assert (model.raw.positives.count, model.raw.negatives.count) == (2, 3)
    assert model.raw.positives.mean == pytest.approx((9 + 105) / 2)
    assert model.raw.negatives.mean == pytest.approx((3 + 0 + 101) / 3)
    assert (model.raw.negatives.low, model.raw.negatives.high) == (0, 105)


def test_centred_scores_lose_the_mean_of_their_own_query() -> None:
    (model,) = score_distributions({"m": RUN}, QRELS).models
    positives, negatives = np.array([9 - 4, 105 - 103]), np.array([3 - 4, 0 - 4, 101 - 103])
    assert model.centred.positives.mean == pytest.approx(positives.mean())
    assert model.centred.negatives.mean == pytest.approx(negatives.mean())
    assert model.centred.negatives.std == pytest.approx(negatives.std())
    assert model.centred.separation == pytest.approx((positives.mean() - negatives.mean()) / negatives.std())
    assert model.centred.overlap == 0  # no negative reaches the lowest positive


def test_a_shift_from_query_to_query_changes_raw_scores_only() -> None:
    shifted = {query: {d: s + 1000 * len(scores) for d, s in scores.items()} for query, scores in RUN.items()}
    (before,) = score_distributions({"m": RUN}, QRELS).models
    (after,) = score_distributions({"m": shifted}, QRELS).models
    assert after.raw.positives.mean != pytest.approx(before.raw.positives.mean)
    assert after.centred.positives.mean == pytest.approx(before.centred.positives.mean)
    assert after.centred.negatives.quantiles == pytest.approx(before.centred.negatives.quantiles)


def test_negatives_that_are_all_alike_have_no_separation() -> None:
    (model,) = score_distributions({"m": {"q1": {"a": 2.0, "b": 0.0, "c": 0.0}}}, QRELS).models
    assert model.raw.separation is None
    assert "–" in shown(score_distributions_section(score_distributions({"m": {"q1": {"a": 2.0, "b": 0.0}}}, QRELS)))


def test_a_result_holds_no_more_numbers_for_more_scores() -> None:
    few, many = ({"q1": {"a": 1.0, **{f"d{at}": float(at) for at in range(count)}}} for count in (10, 3000))
    sizes = [len(score_distributions({"m": run}, QRELS).model_dump_json()) for run in (few, many)]
    assert sizes[1] < 2 * sizes[0]


def test_snapshots_of_one_student_are_models_like_others() -> None:
    start: Run = {"q1": {"a": 1.0, "b": 1.0, "c": 0.0}, "q2": {"a": 1.0, "b": 1.0}}
    result = score_distributions({"step 0": start, "step 900": RUN}, QRELS)
    assert comes_back(result)
    text = shown(score_distributions_section(result))
    assert "step 900 0%; step 0 67%" in text
    assert "2 queries." in text


def test_models_that_saw_different_queries_say_so() -> None:
    result = score_distributions({"all": RUN, "some": {"q1": RUN["q1"], "q9": {"a": 1.0}}}, QRELS)
    assert "all 2 of 2; some 1 of 2" in shown(score_distributions_section(result))


def test_no_run_at_all_is_a_mistake() -> None:
    with pytest.raises(LimbeckError, match="there are no runs; give one run for each model"):
        score_distributions({}, QRELS)


def test_the_model_with_the_bad_run_is_named() -> None:
    with pytest.raises(LimbeckError, match="student: the run is empty"):
        score_distributions({"teacher": RUN, "student": {}}, QRELS)
