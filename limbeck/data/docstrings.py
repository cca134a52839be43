"""Docstrings of the running Python: its standard library from source, builtins and numpy from the live objects.

Source files are parsed, never imported, so that modules have no side effects (such as opening a browser). Only
modules without source, and numpy, which is a dependency, are imported.
"""

from __future__ import annotations

import ast
import gc
import importlib
import inspect
import os
import sysconfig
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

SKIPPED_FOLDERS = {
    "__pycache__",
    "dist-packages",
    "distutils",
    "encodings",
    "ensurepip",
    "idlelib",
    "lib-dynload",
    "lib2to3",
    "pydoc_data",
    "site-packages",
    "test",
    "tests",
    "turtledemo",
}
# Private files that contain the documentation of a public module, under the module's public name.
PUBLIC_NAMES = {
    "_collections_abc": "collections.abc",
    "_pydecimal": "decimal",
    "_pyio": "io",
    "_io": "io",
    "_socket": "socket",
    "_thread": "threading",
    "posix": "os",
}
COMPILED_MODULES = (
    "builtins",
    "_io",
    "_socket",
    "_thread",
    "array",
    "atexit",
    "binascii",
    "cmath",
    "collections",
    "fcntl",
    "functools",
    "gc",
    "itertools",
    "marshal",
    "math",
    "mmap",
    "posix",
    "pwd",
    "readline",
    "resource",
    "select",
    "signal",
    "struct",
    "sys",
    "termios",
    "time",
    "unicodedata",
    "zlib",
)
NUMPY_MODULES = (
    "numpy",
    "numpy.fft",
    "numpy.lib.format",
    "numpy.lib.recfunctions",
    "numpy.lib.scimath",
    "numpy.lib.stride_tricks",
    "numpy.linalg",
    "numpy.ma",
    "numpy.polynomial",
    "numpy.polynomial.chebyshev",
    "numpy.polynomial.hermite",
    "numpy.polynomial.laguerre",
    "numpy.polynomial.legendre",
    "numpy.polynomial.polynomial",
    "numpy.random",
    "numpy.strings",
)


class Docstring(NamedTuple):
    """A docstring with the module that defines it and the qualified name a user would type."""

    module: str
    name: str
    text: str


def docstrings() -> Iterator[Docstring]:
    """Every public docstring, in an order that depends only on the installed versions."""
    for module in COMPILED_MODULES:
        yield from _live_docstrings(module, python_functions=False)
    library = Path(sysconfig.get_path("stdlib"))
    with collecting_paused():
        for module, path in source_files(library, SKIPPED_FOLDERS):
            yield from _source_docstrings(module, path)
    for module in NUMPY_MODULES:
        yield from _live_docstrings(module, python_functions=True)


@contextmanager
def collecting_paused() -> Iterator[None]:
    """Pause garbage collection: syntax trees have no cycles, and collecting while they grow doubles the time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def source_files(library: Path, skipped: Collection[str], private: bool = False) -> Iterator[tuple[str, Path]]:
    """The modules below a folder, by the name they have there, and their files; the folder's own module is ""."""
    for folder, folders, files in os.walk(library):
        folders[:] = sorted(f for f in folders if f not in skipped and Path(folder, f, "__init__.py").exists())
        for file in sorted(files):
            path = Path(folder, file)
            parts = path.relative_to(library).with_suffix("").parts
            if path.suffix == ".py" and (private or is_public(parts[-1]) or parts[0] in PUBLIC_NAMES):
                yield ".".join(part for part in parts if part != "__init__"), path


def _source_docstrings(module: str, path: Path) -> Iterator[Docstring]:
    tree = ast.parse(path.read_bytes())
    known_as = PUBLIC_NAMES.get(module, module)
    text = ast.get_docstring(tree)
    if text:
        yield Docstring(known_as, known_as, text)
    yield from own_docstrings(tree.body, known_as)


def own_docstrings(body: list[ast.stmt], module: str, prefix: str | None = None) -> Iterator[Docstring]:
    """The docstrings of the public functions and classes that a module's syntax tree defines."""
    for node in body:
        if isinstance(node, ast.If | ast.Try):
            yield from own_docstrings([*node.body, *node.orelse], module, prefix)
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and is_public(node.name):
            name = f"{prefix or module}.{node.name}"
            text = ast.get_docstring(node)
            if text:
                yield Docstring(module, name, text)
            if isinstance(node, ast.ClassDef):
                yield from own_docstrings(node.body, module, name)


def _live_docstrings(module: str, python_functions: bool) -> Iterator[Docstring]:
    """Docstrings of a module's public objects and their own members; a module that this platform lacks has none."""
    try:
        namespace = vars(importlib.import_module(module))
    except ImportError:
        return
    known_as = PUBLIC_NAMES.get(module, module)
    prefix = "" if module == "builtins" else f"{known_as}."
    for name, value in sorted(namespace.items()):
        if not is_public(name) or not callable(value) or (inspect.isfunction(value) and not python_functions):
            continue
        if isinstance(value, type) and value.__module__.partition(".")[0] not in (module.partition(".")[0], known_as):
            continue
        yield from _documented(known_as, prefix + name, value)
        if isinstance(value, type):
            for member_name, member in sorted(vars(value).items()):
                if is_public(member_name) and (callable(member) or inspect.isdatadescriptor(member)):
                    yield from _documented(known_as, f"{prefix}{name}.{member_name}", member)


def _documented(module: str, name: str, value: object) -> Iterator[Docstring]:
    """The docstring as compiled, if there is one. Some packages change docstrings: scipy rewrites `numpy.sinc`."""
    text = getattr(value, "__doc__", None)
    code = getattr(getattr(value, "_implementation", value), "__code__", None)
    if text and code is not None and code.co_consts and isinstance(code.co_consts[0], str):
        text = code.co_consts[0]
    if isinstance(text, str):
        yield Docstring(module, name, inspect.cleandoc(text))


def is_public(name: str) -> bool:
    return not name.startswith("_") or (name.startswith("__") and name.endswith("__"))
