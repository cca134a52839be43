"""What `import limbeck` gives besides the library: the same work, with progress for the person who waits."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from limbeck.progress import has_reporter, reporting

if TYPE_CHECKING:
    from limbeck.training import Recipe, Result


def distill(
    recipe: str | Path | dict[str, Any] | Recipe,
    out: str | Path | None = None,
    overrides: list[str] | None = None,
    progress: bool | None = None,
) -> Result:
    """Run a recipe. Killed at any point and called again, it goes on where it was; a finished run is returned as is.

    `progress` shows what it is at, on standard error; by default on a terminal and in notebooks.
    """
    from limbeck.training.run import distill as run

    shown = _watched() if progress is None else progress
    with _reporting(shown):
        return run(recipe, out, overrides)


def _reporting(shown: bool) -> Any:
    if shown and has_reporter():
        return nullcontext()  # the caller's own
    if not shown:
        return reporting(None)
    from limbeck.cli.console import reporter

    return reporting(reporter())


def _watched() -> bool:
    return has_reporter() or sys.stderr.isatty() or "ipykernel" in sys.modules
