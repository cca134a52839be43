"""The time that a run may take."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path

from limbeck.sealed import read_if_whole, write_sealed

USED = "time.json"


@dataclass
class Clock:
    """The time that a run may take in all calls together: what they used is kept in `place`, also if one is killed."""

    minutes: float | None
    place: Path | None = None
    began: float = field(default_factory=time.monotonic)
    before: float = 0.0  # seconds of earlier calls
    finished: float | None = None  # the most minutes of a call that came to its end

    def __post_init__(self) -> None:
        known = read_if_whole(self.place) if self.place is not None else None
        if known is not None:
            self.before, self.finished = float(known["seconds"]), known.get("finished")

    @property
    def used(self) -> float:
        """Seconds of all calls."""
        return self.before + time.monotonic() - self.began

    @property
    def left(self) -> float:
        """Seconds; infinite without a limit."""
        return float("inf") if self.minutes is None else 60 * self.minutes - self.used

    @property
    def was_finished(self) -> bool:
        """Whether a call with as many minutes came to its end, so that there is nothing left to train."""
        return self.minutes is not None and self.finished is not None and self.minutes <= self.finished

    def save(self) -> None:
        if self.place is not None:
            write_sealed(self.place, {"seconds": self.used, "finished": self.finished})

    def finish(self) -> None:
        """Note that this call came to its end."""
        if self.minutes is not None:
            self.finished = max(self.minutes, self.finished or 0.0)
