"""Objectives, interactions, architectures and analyses from outside the package.

A package offers them through the entry-point group `limbeck`; each entry names a module, and importing it registers
what it defines. A single file needs no package: name it in LIMBECK_PLUGINS, or give `--plugin FILE`. Limbeck only
imports what the user names in one of these ways, never what a recipe or a model folder names.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

from limbeck.errors import LimbeckError, bad_input

GROUP, VARIABLE = "limbeck", "LIMBECK_PLUGINS"


def load_plugins() -> None:
    """Import every plugin that is installed or named, each of them once."""
    for entry in entry_points(group=GROUP):
        _module(entry.value)
    for name in filter(None, os.environ.get(VARIABLE, "").split(os.pathsep)):
        use_plugin(name)


def name_plugins(names: Sequence[str]) -> None:
    """Add plugins to the list that this process and its workers load, and load them now."""
    absolute = [str(Path(name).expanduser().resolve()) if name.endswith(".py") else name for name in names]
    known = os.environ.get(VARIABLE, "")
    os.environ[VARIABLE] = os.pathsep.join([*([known] if known else []), *absolute])
    for name in absolute:
        use_plugin(name)


def use_plugin(name: str) -> None:
    """Import a plugin by its file or module name."""
    if name.endswith(".py") or os.sep in name:
        _file(str(Path(name).expanduser().resolve()))
    else:
        _module(name)


@cache
def _module(name: str) -> None:
    try:
        import_module(name)
    except ImportError as error:
        raise LimbeckError(
            f"plugin {name}: cannot be imported ({error}); install it, or remove it from the list"
        ) from error


@cache
def _file(path: str) -> None:
    if not Path(path).is_file():
        raise bad_input(path, "no such plugin", "name a Python file")
    name = f"limbeck_plugin_{Path(path).stem}"
    spec = spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except LimbeckError:
        raise
    except Exception as error:
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        raise bad_input(path, f"fails when it is imported ({reason})", "correct it") from error
