"""Checks that take no time, made before the seconds that torch takes to import: a mistyped path is told at once."""

from __future__ import annotations

from pathlib import Path


def require_data(*sources: str | Path | None) -> None:
    """Every name of a data set leads somewhere."""
    from limbeck.data import require_source

    for source in sources:
        if source is not None:
            require_source(source)


def require_model(*names: str | Path | None) -> None:
    """Every name of a model is a folder, or known to the hub."""
    from limbeck.matchers.names import resolve

    for name in names:
        if name is not None:
            resolve(name)


def require_ranker(*names: str | None) -> None:
    """The same for what `limbeck evaluate` measures: BM25 and a run file are no models."""
    require_model(*(name for name in names if name is not None and name != "bm25"))


def require_index(path: str | Path) -> None:
    """A folder holds an index, be it a damaged one."""
    from limbeck.search.manifest import IndexManifest, is_an_index

    if not is_an_index(path):
        IndexManifest.load(Path(path))  # says what is wrong


def require_recipe(source: str) -> None:
    """A recipe exists and is YAML."""
    from limbeck.training.recipe_files import read_recipe

    read_recipe(source)


def require_run(folder: str | Path) -> None:
    """A run's directory holds a finished run."""
    from limbeck.report.run_files import read_run

    read_run(folder)
