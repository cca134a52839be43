from __future__ import annotations

import pytest

from limbeck.errors import LimbeckError
from limbeck.evaluation.gate import Gate, failures, parse_gate


def test_gates_are_read_as_they_are_written() -> None:
    assert parse_gate("ndcg@10=0.60") == Gate("ndcg@10", 0.6)
    assert parse_gate(" MRR@10 = 0.3") == Gate("mrr@10", 0.3)
    assert parse_gate("auc=.9") == Gate("auc", 0.9)
    assert str(parse_gate("R@100=0.95")) == "recall@100=0.95"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("ndcg@10", "write a measure and its minimum"),
        ("ndcg@10=high", "'high'"),
        ("ndcg@10=", "''"),
        ("ndcg@10=nan", "'nan'"),
        ("ndgc@10=0.6", "did you mean 'ndcg'"),
    ],
)
def test_a_gate_that_cannot_be_read_gets_one_line(text: str, says: str) -> None:
    with pytest.raises(LimbeckError, match=says):
        parse_gate(text)


def test_values_below_the_minimum_fail_and_values_at_it_pass() -> None:
    gates = [Gate("ndcg@10", 0.6), Gate("mrr@10", 0.5)]
    assert failures(gates, {"ndcg@10": 0.6, "mrr@10": 0.7}) == []
    assert failures(gates, {"ndcg@10": 0.59, "mrr@10": 0.7}) == ["ndcg@10 is 0.5900, below 0.6"]
    assert failures(gates, {"ndcg@10": float("nan"), "mrr@10": 0.7}) == ["ndcg@10 is nan, below 0.6"]


def test_a_gate_on_a_measure_that_was_not_computed_is_a_mistake() -> None:
    with pytest.raises(LimbeckError, match=r"--fail-below map=0\.2"):
        failures([Gate("map", 0.2)], {"ndcg@10": 0.6})
