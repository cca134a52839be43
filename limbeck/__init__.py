"""Limbeck turns a slow, accurate text matcher into the fastest student that still does its job, and runs it.

import limbeck as lb

result = lb.distill("defense-laptop")
for row in result.rows:
    print(row.name, row.measures, row.speedup)
print(result.student.rank("how do I copy a file", documents))
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from limbeck.api import (
        annotate,
        compress,
        distill,
        evaluate,
        export,
        generate,
        index,
        inspect,
        measure_runtimes,
        open_index,
        push,
        recipes,
        score,
        sweep,
    )
    from limbeck.data import load as load_data
    from limbeck.matchers import load
    from limbeck.recipe import Recipe

_API = (
    "annotate",
    "compress",
    "distill",
    "evaluate",
    "export",
    "generate",
    "index",
    "inspect",
    "measure_runtimes",
    "open_index",
    "push",
    "recipes",
    "score",
    "sweep",
)
_HOME = {
    "load": ("limbeck.matchers", "load"),
    "load_data": ("limbeck.data", "load"),
    "Recipe": ("limbeck.recipe", "Recipe"),
    **{name: ("limbeck.api", name) for name in _API},
}

__all__ = [
    "Recipe",
    "__version__",
    "annotate",
    "compress",
    "distill",
    "evaluate",
    "export",
    "generate",
    "index",
    "inspect",
    "load",
    "load_data",
    "measure_runtimes",
    "open_index",
    "push",
    "recipes",
    "score",
    "sweep",
]


def __getattr__(name: str) -> Any:
    """Import a name when it is first used: torch takes seconds to import, and `limbeck --help` does not need it."""
    if name not in _HOME:
        raise AttributeError(f"module 'limbeck' has no attribute {name!r}")
    from importlib import import_module

    module, attribute = _HOME[name]
    return getattr(import_module(module), attribute)


def __dir__() -> list[str]:
    """List all names without importing them, so that shells can complete them."""
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})
