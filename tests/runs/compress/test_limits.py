from __future__ import annotations

import pytest

from limbeck.errors import LimbeckError
from limbeck.runs.compress.limits import Limits


@pytest.mark.parametrize(
    ("text", "ms", "size"),
    [
        ("2ms", 2.0, None),
        (" 0.5 MS ", 0.5, None),
        ("40us", 0.04, None),
        ("1s", 1000.0, None),
        ("1KB/doc", None, 1000.0),
        ("1 KiB / doc", None, 1024.0),
        ("768B/document", None, 768.0),
    ],
)
def test_budgets_are_times_per_query_or_sizes_per_document(text, ms, size):
    assert Limits.parse([text]) == Limits(ms, size)


@pytest.mark.parametrize(
    "text", ["", "fast", "2", "ms", "-2ms", "0ms", "2 parsecs", "1KB", "2ms/doc", "1e3ms", "nanms"]
)
def test_a_budget_that_cannot_be_read_is_refused_with_an_example(text):
    with pytest.raises(LimbeckError, match="2ms or 1KB/doc"):
        Limits.parse([text])


def test_two_budgets_of_one_kind_are_refused_and_two_kinds_go_together():
    with pytest.raises(LimbeckError, match="two budgets"):
        Limits.parse(["2ms", "3ms"])
    assert Limits.parse(["2ms", "1KB/doc"], "97.5%") == Limits(2.0, 1000.0, 0.975)


@pytest.mark.parametrize(("given", "share"), [("95%", 0.95), ("0.95", 0.95), (0.9, 0.9), ("100%", 1.0)])
def test_keep_is_a_share(given, share):
    assert Limits.parse([], given).keep == pytest.approx(share)


@pytest.mark.parametrize("given", ["", "95", "much", "-5%", "0%", "nan"])
def test_keep_that_is_no_share_is_refused(given):
    with pytest.raises(LimbeckError, match="--keep"):
        Limits.parse([], given)


def test_without_wishes_95_percent_is_needed_and_with_a_budget_only_what_is_asked_for():
    assert Limits().needed == 0.95
    assert Limits(ms=2.0).needed is None
    assert Limits(ms=2.0, keep=0.8).needed == 0.8


def test_an_unknown_cost_is_not_within_a_budget():
    assert Limits(ms=2.0).affords(2.0, None)
    assert not Limits(ms=2.0).affords(2.1, None)
    assert not Limits(ms=2.0).affords(None, 10.0)
    assert not Limits(bytes=100.0).affords(1.0, None)
