"""The rows of a pair task's table."""

from __future__ import annotations

from limbeck.evaluation.evaluate import size_in_mb
from limbeck.evaluation.pair_result import PairResult
from limbeck.evaluation.pair_speed import pair_speed
from limbeck.matchers import Matcher
from limbeck.progress import say
from limbeck.runs.pair_session import PairSession
from limbeck.runs.results import Measured, ResultRow, RowKind
from limbeck.training.pair_lists import label_array


class PairBench:
    """Measures models on the test pairs of a session, all in the same way."""

    def __init__(self, session: PairSession) -> None:
        self.session, self.spec = session, session.recipe.evaluation
        self.texts = [pair.texts for pair in session.splits.test]
        self.labels = label_array(session.splits.test)

    def model(self, name: str, kind: RowKind, matcher: Matcher, objective: str | None = None) -> Measured:
        say(f"Measuring {name}")
        scores, calibration = matcher.score(self.texts), self.session.calibration(matcher)
        if calibration is not None:  # so that yes and no are told apart where dev says, not at 0
            scores = calibration.logits(scores)
        result = PairResult.of(scores, self.labels, self.session.measures)
        speed = pair_speed(matcher, self.texts)
        row = ResultRow(name, kind, result.means, objective, pairs_per_second=speed, size_mb=size_in_mb(matcher))
        return Measured(row, result, {})
