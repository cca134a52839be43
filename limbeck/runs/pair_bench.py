"""Measure models on the test pairs of a pair task."""

from __future__ import annotations

from typing import TYPE_CHECKING

from limbeck.evaluation.evaluate import size_in_mb
from limbeck.evaluation.pair_result import PairResult
from limbeck.evaluation.pair_speed import pair_speed
from limbeck.matchers import Matcher
from limbeck.progress import say
from limbeck.runs.bench import Bench
from limbeck.runs.results import Measured, ResultRow, RowKind
from limbeck.training.pair_lists import label_array

if TYPE_CHECKING:
    from limbeck.runs.pair_task import PairTask


class PairBench(Bench):
    """Measures all models on the test pairs of a task in the same way."""

    def __init__(self, task: PairTask) -> None:
        self.task, self.spec = task, task.recipe.evaluation
        self.texts = [pair.texts for pair in task.splits.test]
        self.labels = label_array(task.splits.test)

    def model(self, name: str, kind: RowKind, matcher: Matcher, objective: str | None = None) -> Measured:
        say(f"Measuring {name}")
        scores, calibration = matcher.score(self.texts), self.task.calibration(matcher)
        if calibration is not None:  # so that the decision uses dev's threshold instead of 0
            scores = calibration.logits(scores)
        result = PairResult.of(scores, self.labels, self.task.measures)
        speed = pair_speed(matcher, self.texts)
        row = ResultRow(name, kind, result.means, objective, pairs_per_second=speed, size_mb=size_in_mb(matcher))
        return Measured(row, result, {})
