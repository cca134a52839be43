"""One colour for a model in all pictures of a report."""

from __future__ import annotations

from collections.abc import Iterable

TEACHER = "teacher"


class Colours:
    """Numbers of colours by model: the teacher's is 0, then those of `names`; a name that is new gets the next one."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        self._numbers = {name: number for number, name in enumerate(dict.fromkeys([TEACHER, *names]))}

    def __getitem__(self, name: str) -> int:
        return self._numbers.setdefault(name, len(self._numbers))
