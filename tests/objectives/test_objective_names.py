"""Names that parse back, and what is said about names that do not."""

from __future__ import annotations

import pytest

from limbeck.errors import LimbeckError
from limbeck.objectives import (
    OBJECTIVES,
    Objective,
    focal,
    kl,
    margin_mse,
    masked_lm,
    mse,
    one_hot,
    parse,
    rank_distil,
    softmax_ce,
)
from limbeck.signals import Signals

from .reference import EXPECTED, EXPECTED_OF_CLASSES, EXPECTED_OF_TOKENS

EVERY = [*EXPECTED, *EXPECTED_OF_TOKENS, *EXPECTED_OF_CLASSES]


@pytest.mark.parametrize(
    ("text", "weight", "objective"),
    [
        ("mse", 1.0, mse()),
        ("mse()", 1.0, mse()),
        ("0.1 * one_hot", 0.1, one_hot()),
        ("2*one_hot(tau=0.05)", 2.0, one_hot(tau=0.05)),
        (" 1e-3 *  softmax_ce( tau_teacher = 0.25 ) ", 0.001, softmax_ce(tau_teacher=0.25)),
        ("softmax_ce(tau=2, scale=true)", 1.0, softmax_ce(tau=2, scale=True)),
        ("kl(tau=2, tau_teacher=null, scale=True)", 1.0, kl(tau=2, scale=True)),
        ("margin_mse(pairs=all)", 1.0, margin_mse(pairs="all")),
        ("margin_mse(pairs='all')", 1.0, margin_mse(pairs="all")),
        ("0 * rank_distil(gamma0=-1.5)", 0.0, rank_distil(gamma0=-1.5)),
        ("one_hot(smoothing=0.1)", 1.0, one_hot(smoothing=0.1)),
        ("focal(gamma=1, tau=2)", 1.0, focal(gamma=1, tau=2)),
        ("0.1 * masked_lm", 0.1, masked_lm()),
    ],
)
def test_a_name_is_read_as_weight_and_objective(text: str, weight: float, objective: Objective) -> None:
    assert parse(text) == (weight, objective)


@pytest.mark.parametrize("objective", EVERY, ids=str)
def test_the_name_of_an_objective_parses_back_and_is_valid_python(objective: Objective) -> None:
    assert parse(str(objective)) == (1.0, objective)
    assert eval(repr(objective), dict(OBJECTIVES)) == objective


def test_a_name_shows_only_what_differs_from_the_default() -> None:
    assert str(one_hot(tau=1)) == str(one_hot()) == "one_hot"
    assert str(softmax_ce(tau_teacher=0.25)) == "softmax_ce(tau_teacher=0.25)"
    assert str(softmax_ce(tau=2.0, scale=True)) == "softmax_ce(tau=2, scale=True)"
    assert str(margin_mse(pairs="all")) == "margin_mse(pairs='all')"
    assert str(one_hot(tau=0.1 + 0.2)) == "one_hot(tau=0.30000000000000004)"


def test_objectives_are_values() -> None:
    assert one_hot(tau=2) == one_hot(tau=2.0) != one_hot(tau=3)
    assert len({one_hot(tau=2), one_hot(tau=2.0), softmax_ce(), kl()}) == 3
    with pytest.raises(AttributeError):
        one_hot().tau = 2  # type: ignore[misc]


def test_needs_are_declared_as_fields_of_signals() -> None:
    for objective in EVERY:
        assert objective.needs_student | objective.needs_teacher <= set(Signals.__dataclass_fields__)
    assert (one_hot().needs_teacher, one_hot().needs_labels) == (frozenset(), True)
    assert (softmax_ce().needs_teacher, softmax_ce().needs_labels) == ({"scores"}, False)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("sofmax_ce", "unknown objective 'sofmax_ce'; did you mean 'softmax_ce'?"),
        ("0.5 * xyzzy", "unknown objective 'xyzzy'; known: binary_ce, class_ce, focal, kl, m3se,"),
        ("softmax_ce(tau_techer=1)", "has no argument 'tau_techer'; did you mean 'tau_teacher'?"),
        ("mse(tau=1)", "'mse' has no argument 'tau'; it takes none"),
        ("one_hot(0.5)", "argument without a name"),
        ("one_hot(tau=1, tau=2)", "'tau' twice"),
        ("one_hot(**x)", "has no argument None"),
        ("one_hot(tau=0)", "tau=0 is not allowed; give a number from 1e-12"),
        ("one_hot(tau=-1)", "tau=-1 is not allowed"),
        ("one_hot(tau=1e999)", "tau=inf is not allowed"),
        ("one_hot(tau=nan)", "tau='nan' is not allowed"),
        ("one_hot(tau=true)", "tau=True is not allowed"),
        ("one_hot(tau=null)", "tau=None is not allowed"),
        ("one_hot(tau=1+1)", "neither a number nor a word"),
        ("one_hot(tau=f(1))", "neither a number nor a word"),
        ("softmax_ce(tau_student=0)", "tau_student=0 is not allowed"),
        ("softmax_ce(scale=1)", "scale=1 is not allowed; give True or False"),
        ("softmax_ce(tau=2, tau_teacher=1, tau_student=1)", "tau has no effect"),
        ("margin_mse(pairs=some)", "pairs='some' is not allowed; give 'judged' or 'all'"),
        ("rank_distil(gamma0=1e999)", "gamma0=inf is not allowed"),
        ("one_hot(smoothing=1)", "smoothing=1 is not allowed; give a number from 0 to 0.999"),
        ("one_hot(smoothing=-0.1)", "smoothing=-0.1 is not allowed"),
        ("focal(gamma=-1)", "gamma=-1 is not allowed; give a number from 0"),
        ("focal(tau=0)", "focal: tau=0 is not allowed"),
        ("masked_lm(rate=0.3)", "'masked_lm' has no argument 'rate'; it takes none"),
        ("-1 * mse", "has weight -1"),
        ("mse * 0.1", "has weight 'mse'"),
        (f"{10**400} * mse", "has weight 1000"),
        ("one_hot + mse", "cannot be read"),
        ("one_hot.tau", "cannot be read"),
        ("", "cannot be read"),
        ("one_hot(", "cannot be read"),
        ("one\x00hot", "cannot be read"),
        ("(" * 10_000, "cannot be read"),
    ],
)
def test_a_bad_name_is_answered_in_one_line_with_a_remedy(text: str, said: str) -> None:
    with pytest.raises(LimbeckError) as error:
        parse(text)
    assert said in str(error.value)
    assert "\n" not in str(error.value)
    assert ";" in str(error.value)


@pytest.mark.parametrize("tau", [0, -1.0, float("inf"), float("nan"), "1"])
def test_a_bad_value_is_refused_in_python_too(tau: object) -> None:
    for kind in ("one_hot", "softmax_ce", "kl", "soft_binary_ce"):
        with pytest.raises(LimbeckError, match=f"{kind}: tau="):
            OBJECTIVES[kind](tau=tau)  # type: ignore[call-arg]
