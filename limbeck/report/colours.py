"""One colour per model for all plots of a report."""

from __future__ import annotations

from collections.abc import Iterable

TEACHER = "teacher"


class Colours:
    """Colour numbers by model: 0, 1, 2 for `names`; a new model gets the next number."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        self._numbers = {name: number for number, name in enumerate(dict.fromkeys(names))}

    def __getitem__(self, name: str) -> int:
        return self._numbers.setdefault(name, len(self._numbers))
