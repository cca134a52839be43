"""Map data values to pixels, and find round numbers to label an axis."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

WIDTHS = (("iljtfr.,:;|'!()[] ", 0.4), ("mwMW@%", 1.0), ("=+<>−±×→~#…", 0.84), ("ABCDEFGHKNOPQRUVXYZ&", 0.76))  # in ems


@dataclass(frozen=True)
class Scale:
    """A linear or logarithmic axis from `low`..`high` to the pixels `start`..`end`."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def __call__(self, value: float) -> float:
        low, high = self._warp(self.low), self._warp(self.high)
        return self.start + (self._warp(value) - low) / (high - low) * (self.end - self.start)

    def _warp(self, value: float) -> float:
        return math.log10(value) if self.log else value

    def ticks(self, wanted: int = 5) -> list[float]:
        """About `wanted` round values on the axis."""
        return _log_ticks(self.low, self.high, wanted) if self.log else _linear_ticks(self.low, self.high, wanted)


def scale_for(values: Sequence[float], start: float, end: float, log: bool = False, padding: float = 0.08) -> Scale:
    """An axis that contains all values with some margin; a single value gets a range of its own size."""
    low, high = min(values), max(values)
    if log:
        if low <= 0:
            raise ValueError(f"a logarithmic axis needs positive values, got {low}")
        span = max(math.log10(high / low), 0.3)
        return Scale(low / 10 ** (span * padding), high * 10 ** (span * padding), start, end, log=True)
    span = high - low or abs(high) or 1.0
    return Scale(low - span * padding, high + span * padding, start, end)


def _linear_ticks(low: float, high: float, wanted: int) -> list[float]:
    """Multiples of the round step next to the wanted one; of a finer step if fewer than three would be left."""
    rough = (high - low) / max(wanted, 1)
    power = 10 ** math.floor(math.log10(rough))
    steps = [power * factor for factor in (10, 5, 2.5, 2, 1)]
    largest = min(step for step in steps if step >= rough * (1 - 1e-9))
    ticks: list[float] = []
    for step in (step for step in steps if step <= largest):
        first = math.ceil(low / step - 1e-9)
        ticks = [round((first + i) * step, 12) for i in range(math.floor(high / step + 1e-9) - first + 1)]
        if len(ticks) >= 3:
            break
    return ticks


def _log_ticks(low: float, high: float, wanted: int) -> list[float]:
    """Powers of ten; if there are few, also their multiples; in a narrow range, round numbers."""
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for multiples in ((1,), (1, 3), (1, 2, 5), (1, 1.5, 2, 3, 5, 7)):
        ticks = [m * 10**d for d in decades for m in multiples if low * (1 - 1e-9) <= m * 10**d <= high * (1 + 1e-9)]
        if len(ticks) >= min(wanted, 3):
            break
    if len(ticks) < 2:
        return _linear_ticks(low, high, wanted)
    thinned = ticks[:: max(1, math.ceil(len(ticks) / (wanted + 2)))]
    return [float(f"{tick:.6g}") for tick in thinned]


def tick_label(value: float) -> str:
    """A tick label: 0.05, 12, 1,500."""
    if value != 0 and (abs(value) < 1e-4 or abs(value) >= 1e9):
        return f"{value:.3g}"
    return f"{value:,.6f}".rstrip("0").rstrip(".")


def text_width(text: str, size: float) -> float:
    """An estimate of the width of `text` in a system font; it is on the wide side, based on DejaVu Sans."""
    return size * sum(next((wide for letters, wide in WIDTHS if c in letters), 0.64) for c in text)


def shortened(text: str, width: float, size: float) -> str:
    """`text`, cut with an ellipsis if it is wider than `width` pixels."""
    if text_width(text, size) <= width:
        return text
    while text and text_width(text + "…", size) > width:
        text = text[:-1]
    return text.rstrip() + "…"
