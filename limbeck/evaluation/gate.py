"""A minimum quality, for CI: `--fail-below ndcg@10=0.60`."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from limbeck.errors import LimbeckError
from limbeck.evaluation.measure_names import canonical_name
from limbeck.evaluation.pairs import PAIR_MEASURES


@dataclass(frozen=True)
class Gate:
    """The minimum value of a measure."""

    measure: str
    minimum: float

    def __str__(self) -> str:
        return f"{self.measure}={self.minimum:g}"


def parse_gate(text: str) -> Gate:
    """Read `measure=minimum`."""
    name, equals, number = text.partition("=")
    if not equals:
        raise LimbeckError(f"cannot read --fail-below {text!r}; write a measure and its minimum, e.g. ndcg@10=0.60")
    try:
        minimum = float(number)
    except ValueError:
        minimum = math.nan
    if not math.isfinite(minimum):
        raise LimbeckError(
            f"cannot read the minimum {number!r} in --fail-below {text!r}; write a number, e.g. ndcg@10=0.60"
        )
    name = name.strip().lower()
    return Gate(name if name in PAIR_MEASURES else canonical_name(name), minimum)


def failures(gates: Iterable[Gate], values: Mapping[str, float]) -> list[str]:
    """One line for each gate that fails; NaN fails. A gate on a measure that was not computed is an error."""
    lines = []
    for gate in gates:
        if gate.measure not in values:
            computed = ", ".join(values) or "nothing"
            raise LimbeckError(
                f"--fail-below {gate} cannot be checked: only {computed} was computed; add {gate.measure} to --measures"
            )
        value = values[gate.measure]
        if not value >= gate.minimum:
            lines.append(f"{gate.measure} is {value:.4f}, below {gate.minimum:g}")
    return lines
