"""One colour for a model in all pictures of a report."""

from __future__ import annotations

from collections.abc import Iterable

TEACHER = "teacher"


class Colours:
    """Numbers of colours by model: 0, 1, 2 for `names`; one that is new gets the next number."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        self._numbers = {name: number for number, name in enumerate(dict.fromkeys(names))}

    def __getitem__(self, name: str) -> int:
        return self._numbers.setdefault(name, len(self._numbers))
