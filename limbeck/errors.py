"""The only kind of error that a user should see."""

from __future__ import annotations

from pathlib import Path


class LimbeckError(Exception):
    """A mistake that the user can fix: one line that names the place, what is wrong, and the remedy.

    The command line prints it without a traceback and exits with 2.
    """


def bad_input(path: str | Path, problem: str, remedy: str, line: int | None = None) -> LimbeckError:
    """An error about a file: ``path:line: problem; remedy``."""
    place = f"{path}:{line}" if line is not None else f"{path}"
    return LimbeckError(f"{place}: {problem}; {remedy}")


def first_line(error: BaseException) -> str:
    """The first line of somebody else's error, for use inside one of ours."""
    return str(error).strip().split("\n", 1)[0][:200]


def did_you_mean(word: str, known: list[str]) -> str:
    """The remedy for a misspelt name: the closest known name, or all known names."""
    from difflib import get_close_matches

    close = get_close_matches(word, known, n=1, cutoff=0.6)
    return f"did you mean {close[0]!r}?" if close else f"known: {', '.join(sorted(known))}"
