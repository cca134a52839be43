"""Which rungs are begun, which students are stopped, and which are left out."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from limbeck.runs.compress import ladder as ladder_module
from limbeck.runs.compress.candidates import Candidate, Start, of_dual_encoder, of_scores
from limbeck.runs.compress.clock import Clock
from limbeck.runs.compress.ladder import SPARE, Cost, Ladder, Progress
from tests.runs.compress.test_candidates import CROSS, DUAL


def new_ladder(folder: Path, candidates: Iterable[Candidate]) -> Ladder:
    nothing: Any = None
    return Ladder(nothing, nothing, folder, list(candidates), nothing, Clock(None))


@pytest.fixture
def ladder(tmp_path: Path) -> Ladder:
    return new_ladder(tmp_path, of_dual_encoder(DUAL, (5000, 3000), Start("minilm", 6, 128), False, labelled=200))


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
    ladder._leave_out(["static", "2 layers"])
    assert ladder.kept == (["static"] if left_out else ["static", "2 layers"])
    assert ("2 layers" in ladder.notes()) is left_out and not ladder.progress["2 layers"].over


def test_a_student_that_was_left_out_when_the_time_was_over_goes_on(
    ladder: Ladder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """95% of a cheaper one is too little to be measured, and enough to be trained further."""
    there = {"static": Progress(rung=0, dev=0.8, over=True, left_out=""), "2 layers": Progress(rung=0, dev=0.76)}
    there["2 layers"].left_out = "left out after 79 steps"
    ladder.candidates = {name: ladder.candidates[name] for name in there}
    ladder.progress, trained = there, []
    monkeypatch.setattr(ladder, "_costs", lambda names: {name: Cost(1.0, 96) for name in names})
    monkeypatch.setattr(ladder, "_train", lambda name, rung, reserve: trained.append((name, rung)))
    ladder.climb(lambda others: 0.0, lambda name: None)
    assert trained == [("2 layers", 1)]
    assert ladder.kept == ["static"]  # decided again at the end


@pytest.fixture
def rerankers(tmp_path: Path) -> Ladder:
    return new_ladder(tmp_path, of_scores(CROSS, (5000, 3000), 1000, Start("minilm", 6, 128)))


@pytest.mark.parametrize(("stored", "stays"), [(20_000, True), (1536, False)])
def test_a_colbert_that_is_better_and_as_fast_leaves_a_dual_encoder_that_stores_less(
    rerankers: Ladder, monkeypatch: pytest.MonkeyPatch, stored: float, stays: bool
) -> None:
    dual, colbert = "2 layers", "ColBERT, 2 layers"
    rerankers.progress |= {dual: Progress(rung=0, dev=0.4), colbert: Progress(rung=0, dev=0.5)}
    monkeypatch.setattr(rerankers, "_costs", lambda names: {dual: Cost(2.0, 1536), colbert: Cost(2.0, stored)})
    rerankers._leave_out([dual])
    assert (dual in rerankers.kept) is stays
    rerankers.progress[dual].left_out = None
    rerankers._stop_dominated(0)
    assert (dual in rerankers.kept) is stays


def slow(ladder: Ladder, monkeypatch: pytest.MonkeyPatch, training: float, dev: float) -> None:
    """Rungs that take so many seconds to train, and so many to compare on dev."""
    now = [0.0]

    def wait(seconds: float) -> Callable[..., None]:
        return lambda *_, **__: now.__setitem__(0, now[0] + seconds)

    monkeypatch.setattr(ladder_module, "time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(ladder_module, "train_student", wait(training))
    bench: Any = SimpleNamespace(load=lambda *_: None, ranking=wait(dev))
    exam: Any = SimpleNamespace(measure="ndcg", judge=lambda _: SimpleNamespace(means={"ndcg": 0.5}))
    ladder.bench, ladder.dev = bench, exam


def test_the_time_of_a_step_has_its_share_of_the_comparison_on_dev(
    ladder: Ladder, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow(ladder, monkeypatch, training=10, dev=90)
    ladder._train("2 layers, both sides", 0, lambda _: 0.0)
    steps = ladder.candidates["2 layers, both sides"].new_steps(0)
    assert ladder.progress["2 layers, both sides"].rate == pytest.approx(100 / steps)


def test_a_rung_that_an_earlier_call_began_tells_nothing_of_the_time_of_its_steps(
    ladder: Ladder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(ladder_module, "train_student", interrupt)
    with pytest.raises(KeyboardInterrupt):
        ladder._train("2 layers", 0, lambda _: 0.0)
    again = new_ladder(ladder.folder, ladder.candidates.values())
    slow(again, monkeypatch, training=1, dev=1)
    again._train("2 layers", 0, lambda _: 0.0)
    assert again.progress["2 layers"].has_student and again._estimate("2 layers", 1) == 0.0
    again._train("2 layers", 1, lambda _: 0.0)
    assert again._estimate("2 layers", 2) == pytest.approx(SPARE * 4)  # twice the steps of a rung of 2 seconds


def test_the_time_that_was_used_is_kept_after_each_rung(ladder: Ladder, monkeypatch: pytest.MonkeyPatch) -> None:
    slow(ladder, monkeypatch, training=1, dev=1)
    ladder.clock = Clock(30, ladder.folder / "time.json")
    ladder._train("static", 0, lambda _: 0.0)
    assert Clock(30, ladder.folder / "time.json").before > 0


def test_a_later_call_that_trains_nothing_leaves_out_the_same_students_whatever_their_times(
    ladder: Ladder, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, dev in (("static", 0.5), ("2 layers", 0.4), ("3 layers", 0.4)):
        (ladder.place(name) / "rung-1").mkdir(parents=True)
        ladder.progress[name] = Progress(rung=0, dev=dev, over=True)
    ladder.clock.minutes = ladder.clock.finished = 1
    slower = {"static": Cost(1.0, 96), "2 layers": Cost(2.0, 96), "3 layers": Cost(0.5, 96)}
    monkeypatch.setattr(ladder, "_costs", lambda names: slower)
    ladder.climb(lambda _: 0.0, lambda _: None)
    assert ladder.kept == ["static", "3 layers"]
    again = new_ladder(ladder.folder, ladder.candidates.values())
    again.clock = ladder.clock
    again.climb(lambda _: 0.0, lambda _: None)
    assert again.kept == ladder.kept and again.notes() == ladder.notes()


@pytest.mark.parametrize(("dev", "stopped"), [(0.449, True), (0.451, False)])
@pytest.mark.parametrize("rival", ["static", "static, labels"])
def test_a_finished_student_that_is_much_better_and_as_fast_stops_one_that_could_go_on(
    ladder: Ladder, monkeypatch: pytest.MonkeyPatch, rival: str, dev: float, stopped: bool
) -> None:
    ladder.progress |= {rival: Progress(rung=0, dev=0.5, over=True), "2 layers": Progress(rung=0, dev=dev)}
    monkeypatch.setattr(ladder, "_costs", lambda names: {rival: Cost(1.0, 96), "2 layers": Cost(2.0, 96)})
    ladder._stop_dominated(0)
    assert ladder.progress["2 layers"].is_stopped is stopped


@pytest.mark.parametrize(("dev", "ms", "stopped"), [(0.5, 2.0, True), (0.501, 2.0, False), (0.5, 0.9, False)])
def test_a_student_stops_if_one_with_the_same_steps_is_as_good_and_as_fast(
    ladder: Ladder, monkeypatch: pytest.MonkeyPatch, dev: float, ms: float, stopped: bool
) -> None:
    ladder.progress |= {"2 layers": Progress(rung=0, dev=0.5), "3 layers": Progress(rung=0, dev=dev)}
    monkeypatch.setattr(ladder, "_costs", lambda names: {"2 layers": Cost(1.0, 96), "3 layers": Cost(ms, 96)})
    ladder._stop_dominated(0)
    assert ladder.progress["3 layers"].is_stopped is stopped
    assert ladder.progress["2 layers"].is_stopped is (ms < 1 and dev >= 0.5)


def test_a_student_in_closed_form_stops_no_other_that_is_as_good_after_its_first_rung(
    rerankers: Ladder, monkeypatch: pytest.MonkeyPatch
) -> None:
    rerankers.progress |= {"static": Progress(rung=0, dev=0.5), "2 layers": Progress(rung=0, dev=0.5)}
    monkeypatch.setattr(rerankers, "_costs", lambda names: {"static": Cost(1.0, 96), "2 layers": Cost(2.0, 96)})
    rerankers._stop_dominated(0)
    assert rerankers.kept == ["static", "2 layers"]
