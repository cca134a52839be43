"""Is the recommended student better than what its user could have had anyway?"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING

from limbeck.errors import LimbeckError
from limbeck.evaluation.gate import Gate, failures
from limbeck.runs.compress.exam import AGREEMENT, LABELLED, OVERLAP
from limbeck.runs.compress.front import Offer, meets
from limbeck.runs.compress.limits import Limits

if TYPE_CHECKING:
    from limbeck.runs.results import ResultRow

KEPT = "kept"
GATES = f"write win, marginal, or a minimum of {KEPT}, {LABELLED}, {AGREEMENT} or {OVERLAP}, e.g. {KEPT}=95%"
SIGNIFICANT = 0.05
CLEARLY_FASTER = 1.5  # times


class Level(IntEnum):
    """The verdicts, from worst to best."""

    REGRESSION = 0
    MARGINAL = 1
    WIN = 2


@dataclass(frozen=True)
class Verdict:
    """The last line of a run, and the reason in words."""

    level: Level
    kept: float | None
    speedup: float | None
    baseline: str | None
    p: float | None  # two-sided, of the difference in quality between student and baseline
    reason: str

    def __str__(self) -> str:
        faster = f"{self.speedup:.0f}x" if self.speedup and self.speedup >= 10 else f"{self.speedup or 0:.2g}x"
        return " | ".join(
            [
                f"VERDICT: {self.level.name}",
                "kept unknown" if self.kept is None else f"kept {self.kept:.1%}",
                "speed-up unknown" if self.speedup is None else f"{faster} faster",
                f"baseline {self.baseline or 'none'}",
                "p unknown" if self.p is None else f"p {self.p:.2g}",
            ]
        )


def judge(
    student: Offer,
    others: Sequence[Offer],
    limits: Limits,
    speedup: float | None,
    p_value: Callable[[Offer, Offer], float | None],
) -> Verdict:
    """The verdict on a student; `others` are all models that are not students.

    - REGRESSION: one of the others is at least as good and at most as slow.
    - MARGINAL: the student is not what was asked for (`limits`); or one of the others is at most as slow, and the
      student is not significantly better; or one is at least as good, and the student is not clearly faster.
    - WIN: otherwise.

    The baseline is the best of the others that are at most as slow; if there is none, the fastest of those that are at
    least as good; otherwise the best.
    """
    cheaper = [one for one in others if one.total_ms <= student.total_ms]
    as_good = [one for one in others if one.quality >= student.quality]
    baseline = _baseline(others, cheaper, as_good)
    p = p_value(student, baseline) if baseline is not None else None
    name = baseline.name if baseline is not None else None
    level, reason = Level.WIN, "no other model is as good at this cost"
    if any(one in as_good for one in cheaper):
        level, reason = Level.REGRESSION, f"{name} is at least as good and at most as slow"
    elif not meets(student, limits):
        level, reason = Level.MARGINAL, f"no student meets: {limits}"
    elif cheaper and (p is None or p >= SIGNIFICANT):
        level, reason = Level.MARGINAL, f"{name} is at most as slow, and not significantly worse"
    elif as_good and min(one.total_ms for one in as_good) < CLEARLY_FASTER * student.total_ms:
        near = min(as_good, key=lambda one: one.total_ms)
        level, reason = Level.MARGINAL, f"{near.name} is at least as good, and hardly slower"
    return Verdict(level, student.kept, speedup, name, p, reason)


def _baseline(others: Sequence[Offer], cheaper: Sequence[Offer], as_good: Sequence[Offer]) -> Offer | None:
    if not cheaper and as_good:
        return min(as_good, key=lambda one: one.total_ms)
    return max(cheaper or others, key=lambda one: one.quality, default=None)


def _gate(text: str) -> Gate:
    """The minimum of a measure that runs compute, as a number or in percent."""
    name, _, number = (part.strip().lower() for part in text.partition("="))
    try:
        minimum = float(number.removesuffix("%")) / (100 if number.endswith("%") else 1)
    except ValueError:
        minimum = math.nan
    if name not in (KEPT, LABELLED, AGREEMENT, OVERLAP) or not math.isfinite(minimum):
        raise LimbeckError(f"cannot read --fail-below {text!r}; {GATES}")
    return Gate(name, minimum)


@dataclass(frozen=True)
class Required:
    """What a run must reach to exit with code 0: `--fail-below win`, `marginal`, `kept=95%` or `ndcg@10=0.60`."""

    level: Level | None = None
    gates: tuple[Gate, ...] = ()

    @classmethod
    def parse(cls, texts: Sequence[str]) -> Required:
        names = {level.name.lower(): level for level in (Level.MARGINAL, Level.WIN)}
        words = [text for text in texts if "=" not in text]
        wrong = next((text for text in words if text.strip().lower() not in names), None)
        if wrong is not None:
            raise LimbeckError(f"cannot read --fail-below {wrong!r}; {GATES}")
        levels = [names[text.strip().lower()] for text in words]
        return cls(max(levels, default=None), tuple(_gate(text) for text in texts if "=" in text))

    def missed(self, verdict: Verdict, row: ResultRow) -> list[str]:
        """A line for everything that was not reached; a measure that needs labels is not reached without them."""
        values = row.measures if row.kept is None else {**row.measures, KEPT: row.kept}
        why = "the teacher's quality is 0" if LABELLED in values else "there are no labels"
        unknown = [f"{gate.measure} is not known: {why}" for gate in self.gates if gate.measure not in values]
        lines = [*unknown, *failures([gate for gate in self.gates if gate.measure in values], values)]
        if self.level is not None and verdict.level < self.level:
            lines.append(f"the verdict is {verdict.level.name}, below {self.level.name}: {verdict.reason}")
        return lines
