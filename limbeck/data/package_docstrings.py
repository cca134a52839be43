"""Docstrings of installed packages, from their source: nothing of them is imported.

Packages such as scipy define most of their functions in private modules (`scipy.optimize._minimize`) and export them
from public ones. An object gets the shortest name under which a package above it exports it, and objects of private
modules that nobody exports are left out.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache, cached_property
from importlib.util import find_spec
from itertools import accumulate
from pathlib import Path

from limbeck.data.docstrings import Docstring, collecting_paused, is_public, own_docstrings, source_files

# Packages that come with Limbeck and document what they export. One that is not installed is left out.
DISTRIBUTIONS = {  # the name to import, and the name to install
    "scipy": "scipy",
    "sklearn": "scikit-learn",
    "torch": "torch",
    "transformers": "transformers",
    "sentence_transformers": "sentence-transformers",
    "networkx": "networkx",
    "rich": "rich",
}
# Tests, copies of other packages, compilers, and the same methods again for each of hundreds of models.
SKIPPED_FOLDERS = {
    "_dynamo",
    "_functorch",
    "_inductor",
    "_refs",
    "_vendor",
    "ao",
    "distributed",
    "externals",
    "fx",
    "integrations",
    "models",
    "onnx",
    "quantizers",
    "testing",
    "tests",
}


def package_docstrings() -> Iterator[Docstring]:
    """Every public docstring of the packages of the list that are installed."""
    with collecting_paused():
        for name in DISTRIBUTIONS:
            spec = find_spec(name)
            if spec is not None and spec.origin is not None:
                yield from Package(name, Path(spec.origin).parent).docstrings()


class Package:
    """An installed package: its folder, and what its `__init__` files export."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name, self.folder = name, folder

    @cached_property
    def modules(self) -> dict[str, ast.Module]:
        """The syntax trees of all modules, private ones too."""
        found = source_files(self.folder, SKIPPED_FOLDERS, private=True)
        named = ((f"{self.name}.{module}".removesuffix("."), path) for module, path in found)
        return {module: ast.parse(path.read_bytes()) for module, path in named}

    def docstrings(self) -> Iterator[Docstring]:
        for module, tree in self.modules.items():
            text = ast.get_docstring(tree)
            if text and _is_public_path(module):
                yield Docstring(module, module, text)
            for found in own_docstrings(tree.body, module):
                own = found.name.removeprefix(f"{module}.")
                home = self._home(module, own.partition(".")[0])
                if home is not None:
                    yield Docstring(module, f"{home}.{own}", found.text)

    def _home(self, module: str, name: str) -> str | None:
        """The shortest public path under which an object of a module is exported; None if it is private."""
        above = accumulate(module.split("."), "{}.{}".format)
        public = [path for path in above if _is_public_path(path)]
        return next((path for path in public if name in self.exported(path)), module if module in public else None)

    @cache  # noqa: B019  (a package lives as long as the generator that reads it)
    def exported(self, module: str) -> frozenset[str]:
        """The names that a module imports from others or lists in `__all__`; `import *` takes those of that module."""
        found: set[str] = set()
        for node in self.modules[module].body if module in self.modules else ():
            if isinstance(node, ast.ImportFrom):
                names = {alias.asname or alias.name for alias in node.names}
                found |= self.exported(_imported(module, node)) if "*" in names else names
            if isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign) and _sets_all(node):
                values = ast.walk(node.value) if node.value is not None else ()
                found |= {
                    each.value for each in values if isinstance(each, ast.Constant) and isinstance(each.value, str)
                }
        return frozenset(found)


def _imported(module: str, node: ast.ImportFrom) -> str:
    """The module that an import inside a package's `__init__` names."""
    above = module.split(".")[: len(module.split(".")) - node.level + 1] if node.level else []
    return ".".join([*above, *([node.module] if node.module else [])])


def _sets_all(node: ast.Assign | ast.AugAssign | ast.AnnAssign) -> bool:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    return any(isinstance(target, ast.Name) and target.id == "__all__" for target in targets)


def _is_public_path(module: str) -> bool:
    return all(map(is_public, module.split(".")))
