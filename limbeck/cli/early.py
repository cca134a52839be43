"""Quick checks before torch is imported, which takes seconds: a mistyped path is reported at once."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

PRECISIONS = ("float32", "float16", "int8")  # the same as in `limbeck.stores.precision`, which is slow to import


def require_data(*sources: str | Path | None) -> None:
    """Check that every data set exists."""
    from limbeck.data import require_source

    for source in sources:
        if source is not None:
            require_source(source)


def require_model(*names: str | Path | None) -> None:
    """Check that every model is a folder or a name that the hub knows."""
    from limbeck.errors import LimbeckError
    from limbeck.matchers.names import is_model, model_folder, resolve

    for name in names:
        if name is None:
            continue
        found, remedy = Path(resolve(name)), "give a model's folder, a hub name (owner/name) or `minilm`"
        if not found.exists():  # on the hub
            continue
        if not found.is_dir():
            raise LimbeckError(f"{name}: is not a folder; {remedy}")
        folder = model_folder(found)
        if not is_model(folder) and not (folder / "config.json").exists():
            raise LimbeckError(f"{name}: cannot be loaded as a model (no config.json); {remedy}")


def require_ranker(*names: str | None) -> None:
    """Check that what `limbeck evaluate` compares exists: BM25, run files and indexes are no models."""
    from limbeck.matchers.names import resolve

    for name in names:
        if name is not None and name != "bm25":
            resolve(name)


def require_index(path: str | Path) -> None:
    """Check that a folder contains an index. An error names what is damaged."""
    from limbeck.search.manifest import IndexManifest, is_an_index

    if not is_an_index(path):
        IndexManifest.load(Path(path))  # raises with the reason


def require_recipe(source: str, overrides: Sequence[str] = (), axes: Sequence[str] = ()) -> None:
    """Check that a recipe is YAML and that its data and models exist, except values that a sweep's `axes` replace.

    Without this check, a missing teacher that is only measured would be found after an hour of training.
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
    """A name in an unvalidated recipe, or None; validation reports values that are not names."""
    found = _part(values, key)
    return found if isinstance(found, str) and "\0" not in found else None


def require_run(folder: str | Path) -> None:
    """Check that a folder contains a finished run."""
    from limbeck.report.run_files import read_run

    read_run(folder)


def require_pushable(student: str | Path, name: str) -> None:
    """Check that a folder contains an undamaged student, and that a repository can have this name."""
    from limbeck.runs.push import require_repository_name, student_files

    require_repository_name(name)
    student_files(student)


def require_precision(dtype: str) -> None:
    """Check that vectors can be stored in this precision."""
    from limbeck.errors import LimbeckError

    if dtype not in PRECISIONS:
        raise LimbeckError(f"--dtype: cannot store vectors as {dtype!r}; choose one of {', '.join(PRECISIONS)}")
