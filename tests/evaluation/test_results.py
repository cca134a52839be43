from __future__ import annotations

import numpy as np
import pytest

from limbeck.evaluation.chance import kept
from limbeck.evaluation.pair_result import PairResult
from limbeck.evaluation.ranking_result import RankingResult

YES_OR_NO = PairResult(("auc",), np.array([1.0, 0.0, 0.0, 0.0, 1.0]), (np.array([0.3, 0.1, -1.0, 2.0, 0.5]),))


@pytest.mark.parametrize(
    ("measure", "value"),
    [("auc", 0.5), ("ap", 0.4), ("accuracy", 0.6), ("f1", 2 * 0.4 / 1.4), ("pearson", None), ("spearman", None)],
)
def test_chance_is_what_one_answer_for_all_pairs_gets(measure, value):
    assert YES_OR_NO.chance(measure) == (None if value is None else pytest.approx(value))


def test_chance_among_classes_is_the_share_of_the_largest():
    labels = np.array([0.0, 1.0, 2.0, 2.0])
    assert PairResult(("accuracy",), labels, (np.zeros((4, 3)),)).chance("accuracy") == 0.5


def test_rankings_have_no_chance_to_subtract():
    assert RankingResult(("q",), {"ndcg@10": np.array([0.4])}, 0, 0).chance("ndcg@10") == 0.0


def test_a_coin_flip_keeps_nothing_of_a_teacher():
    assert kept(0.499, 0.687, chance=0.5) == 0.0
    assert kept(0.60, 0.70, chance=0.5) == pytest.approx(0.5)
    assert kept(0.6, 0.5, chance=0.5) is None
    assert kept(0.3, 0.6, chance=0.0) == pytest.approx(0.5)
