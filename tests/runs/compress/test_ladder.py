"""The estimates that decide whether a rung is begun."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from limbeck.runs.compress.candidates import Start, of_dual_encoder, of_scores
from limbeck.runs.compress.clock import Clock
from limbeck.runs.compress.ladder import SPARE, Cost, Ladder, Progress
from tests.runs.compress.test_candidates import CROSS, DUAL


@pytest.fixture
def ladder(tmp_path: Path) -> Ladder:
    nothing: Any = None
    found = list(of_dual_encoder(DUAL, (5000, 3000), Start("minilm", 6, 128), False, labelled=200))
    return Ladder(nothing, nothing, tmp_path, found, nothing, Clock(None))


def test_a_static_encoder_says_nothing_of_the_time_of_layers(ladder: Ladder) -> None:
    ladder.progress["static, labels"] = Progress(rung=0, rate=9.0)
    assert ladder._estimate("2 layers", 0) == 0.0


def test_the_time_of_a_rung_follows_from_the_steps_of_a_similar_student(ladder: Ladder) -> None:
    ladder.progress["2 layers"] = Progress(rung=0, rate=0.2)
    steps = ladder.candidates["3 layers"].new_steps(0)
    assert ladder._estimate("3 layers", 0) == pytest.approx(SPARE * 0.3 * steps)
    assert ladder._estimate("2 layers", 1) == pytest.approx(SPARE * 0.2 * 2 * steps)
    assert ladder._estimate("static, labels", 0) == 0.0


@pytest.mark.parametrize(("dev", "stopped"), [(0.5049, True), (0.5051, False)])
def test_a_student_has_to_gain_from_labels_what_the_other_has_after_its_first_rung(
    ladder: Ladder, dev: float, stopped: bool
) -> None:
    ladder.progress["3 layers"] = Progress(rung=2, dev=0.6, first=0.5)
    ladder.progress["3 layers, labels"] = Progress(rung=0, dev=dev, over=True)
    ladder._stop_without_gain("3 layers, labels")
    assert ladder.progress["3 layers, labels"].is_stopped is stopped


def test_a_student_of_labels_goes_on_if_the_other_has_no_result(ladder: Ladder) -> None:
    ladder.progress["static, labels"] = Progress(rung=0, dev=0.1)
    ladder._stop_without_gain("static, labels")
    assert not ladder.progress["static, labels"].is_stopped


@pytest.mark.parametrize(("dev", "ms", "left_out"), [(0.48, 2.0, True), (0.49, 2.0, False), (0.48, 0.5, False)])
def test_a_student_that_is_clearly_worse_and_slower_is_left_out(
    ladder: Ladder, monkeypatch: pytest.MonkeyPatch, dev: float, ms: float, left_out: bool
) -> None:
    ladder.progress |= {"static": Progress(rung=0, dev=0.5, over=True), "2 layers": Progress(rung=0, dev=dev)}
    monkeypatch.setattr(ladder, "_costs", lambda names: {"static": Cost(1.0, 96), "2 layers": Cost(ms, 96)})
    ladder._leave_out()
    assert ladder.kept == (["static"] if left_out else ["static", "2 layers"])
    assert ("2 layers" in ladder.notes()) is left_out and not ladder.progress["2 layers"].over


@pytest.fixture
def rerankers(tmp_path: Path) -> Ladder:
    nothing: Any = None
    found = list(of_scores(CROSS, (5000, 3000), 1000, Start("minilm", 6, 128)))
    return Ladder(nothing, nothing, tmp_path, found, nothing, Clock(None))


@pytest.mark.parametrize(("stored", "stays"), [(20_000, True), (1536, False)])
def test_a_colbert_that_is_better_and_as_fast_leaves_a_dual_encoder_that_stores_less(
    rerankers: Ladder, monkeypatch: pytest.MonkeyPatch, stored: float, stays: bool
) -> None:
    dual, colbert = "2 layers", "ColBERT, 2 layers"
    rerankers.progress |= {dual: Progress(rung=0, dev=0.4), colbert: Progress(rung=0, dev=0.5)}
    monkeypatch.setattr(rerankers, "_costs", lambda names: {dual: Cost(2.0, 1536), colbert: Cost(2.0, stored)})
    rerankers._leave_out()
    assert (dual in rerankers.kept) is stays
    rerankers.left_out.clear()
    rerankers._stop_dominated(0)
    assert (dual in rerankers.kept) is stays
