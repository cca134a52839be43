"""Which models and pairs the analysis of attention reads."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from limbeck.errors import LimbeckError
from limbeck.objectives import virt
from limbeck.runs.attention_models import SAMPLE, attention_models
from limbeck.runs.results import Measured, ResultRow

TASK = SimpleNamespace(recipe=SimpleNamespace(evaluation=SimpleNamespace(attention_layer=1)))
PAIRS = [(f"a {number}", "b") for number in range(SAMPLE + 5)]


def row(name: str, objective: str, teacher: str = "teacher", kind: str = "student", kept: bool = True) -> Measured:
    folder = Path(name) if kept else None
    return Measured(ResultRow(name, kind, {"accuracy": 0.5}, objective), None, {}, None, folder, teacher)


def test_students_are_compared_with_their_own_teacher():
    rows = [row("teacher", "", kind="teacher"), row("one", "mse"), row("two", "mse", teacher="teacher of two")]
    found = attention_models(TASK, rows, PAIRS)
    assert list(found.students) == ["one"] and found.layer == 1
    assert found.pairs == PAIRS[:SAMPLE]


def test_a_student_without_virt_is_compared_layer_by_layer_as_those_with_it_are():
    rows = [row("plain", "class_ce"), row("first", "class_ce + 2.0 * virt(map=first)"), row("same", "virt + class_ce")]
    found = attention_models(TASK, rows, PAIRS)
    assert found.objectives == {"plain": virt(map="first"), "first": virt(map="first"), "same": virt()}
    assert attention_models(TASK, rows[:1], PAIRS).objectives == {}


def test_what_cannot_be_read_is_said_in_one_line():
    with pytest.raises(LimbeckError, match="weights were dropped; run the sweep without --drop-students"):
        attention_models(TASK, [row("one", "mse", kept=False)], PAIRS)
    with pytest.raises(LimbeckError, match="need test pairs of two texts"):
        attention_models(TASK, [row("one", "mse")], [("a", "b", "c")])
