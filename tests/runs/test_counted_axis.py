"""Axes whose values are words around a number."""

from limbeck.runs.counted_axis import counted_axis
from limbeck.runs.grid import parse_axis


def places(*axes: str):
    found = counted_axis([parse_axis(text) for text in axes])
    return found and found.places


def test_layers_are_a_line_for_each_word():
    found = counted_axis([parse_axis("objective.layers=first:1,first:2,last:1,last:2,all")])
    assert found is not None and found.title == "objective.layers"
    assert found.places == {
        "first:1": ("first:…", 1.0),
        "first:2": ("first:…", 2.0),
        "last:1": ("last:…", 1.0),
        "last:2": ("last:…", 2.0),
    }
    assert found.line("last:2") == "last:…"


def test_weights_of_an_objective_are_one_line_and_no_weight_is_1():
    values = "class_ce + 0 * virt,class_ce + 0.2 * virt,class_ce + virt,class_ce + 10 * virt,class_ce"
    found = counted_axis([parse_axis(f"objective={values}")])
    assert found is not None and found.title == "… in class_ce + … * virt"
    assert [number for _, number in found.places.values()] == [0.0, 0.2, 1.0, 10.0]
    assert "class_ce" not in found.places and found.line("class_ce + virt") == ""


def test_an_argument_of_an_objective_is_a_number_too():
    assert places("objective=0.5 * mse + one_hot(tau=2),0.5 * mse + one_hot(tau=4)") == {
        "0.5 * mse + one_hot(tau=2)": ("0.5 * mse + one_hot(tau=…)", 2.0),
        "0.5 * mse + one_hot(tau=4)": ("0.5 * mse + one_hot(tau=…)", 4.0),
    }


def test_values_that_differ_in_words_or_in_two_numbers_are_no_curve():
    assert places("objective=one_hot,mse") is None
    assert places("objective=one_hot(tau=2),mse(tau=4)") is None
    assert places("objective=2 * one_hot(tau=2),4 * one_hot(tau=4)") is None
    assert places("variant=query-1-layer,query-2-layers") is None
    assert places("objective.layers=first:1,first:2", "objective=mse,2 * mse") is None  # two at once
