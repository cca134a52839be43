"""The time that a run may take."""

from __future__ import annotations

import time
from dataclasses import dataclass, field


@dataclass
class Clock:
    """The time that a run may take, in all calls together that came to their end."""

    minutes: float | None
    before: float = 0.0  # seconds of earlier calls
    began: float = field(default_factory=time.monotonic)

    @property
    def used(self) -> float:
        """Seconds of all calls."""
        return self.before + time.monotonic() - self.began

    @property
    def left(self) -> float:
        """Seconds; infinite without a limit."""
        return float("inf") if self.minutes is None else 60 * self.minutes - self.used
