"""Checks that take no time, made before the seconds that torch takes to import: a mistyped path is reported at once."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

PRECISIONS = ("float32", "float16", "int8")  # as in `limbeck.stores.precision`, which imports more


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


def require_recipe(source: str, overrides: Sequence[str] = (), axes: Sequence[str] = ()) -> None:
    """A recipe is YAML, and the data and models that it names exist; what a sweep's `axes` vary is left to the sweep.

    A teacher that is only measured would else be missed after an hour of training.
    """
    from limbeck.recipe.files import read_recipe, renamed, set_value

    values = renamed(read_recipe(source)[1], source)
    for override in overrides:
        values = set_value(values, override)
    varied = {axis.split("=")[0].split(".")[0] for axis in axes}
    data, student, teacher = (values.get(key) if key not in varied else None for key in ("data", "student", "teacher"))
    require_data(_name(data, "source"))
    if isinstance(teacher, str):
        require_model(None if (Path(teacher) / "recipe.yaml").is_file() else teacher)
    require_model(_name(teacher, "model"), _name(_part(teacher, "train"), "init_from"))
    start = _name(student, "init_from")
    require_model(start if start != "teacher" else None)


def _part(values: Any, key: str) -> Any:
    return values.get(key) if isinstance(values, dict) else None


def _name(values: Any, key: str) -> str | None:
    """A name in a part of a recipe that nobody has checked yet; whatever is none, the check will tell."""
    found = _part(values, key)
    return found if isinstance(found, str) and "\0" not in found else None


def require_run(folder: str | Path) -> None:
    """A run's directory holds a finished run."""
    from limbeck.report.run_files import read_run

    read_run(folder)


def require_precision(dtype: str) -> None:
    """Vectors can be stored that way."""
    from limbeck.errors import LimbeckError

    if dtype not in PRECISIONS:
        raise LimbeckError(f"--dtype: cannot store vectors as {dtype!r}; choose one of {', '.join(PRECISIONS)}")
