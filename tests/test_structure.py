"""What the design promises of the code's shape: imports point one way, and no code outside matchers asks for a kind."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import limbeck

ROOT = Path(limbeck.__file__).parent
# Text goes in at `data` and becomes encodings, scores and numbers; a part imports only what stands before it.
ORDER = (
    "errors signals lazy printable progress console files sealed file_list plugins data stores objectives matchers "
    "generation search scoring evaluation report recipe training runs api cli"
).split()
ARCHITECTURES = {"DualEncoder", "CrossEncoder", "ColBERT", "DiPair", "PolyEncoder"}
MATCHERS = {
    "matcher",
    "student",
    "teacher",
    "model",
    "spec",
    "config",
    "trained",
}  # what variables that hold one are called


def modules() -> Iterator[tuple[Path, ast.Module]]:
    for path in sorted(ROOT.rglob("*.py")):
        yield path, ast.parse(path.read_text(encoding="utf-8"))


def part_of(path: Path) -> str:
    first = path.relative_to(ROOT).parts[0]
    return first.removesuffix(".py")


def imported(tree: ast.Module) -> Iterator[tuple[str, str, int]]:
    """The part and the name of everything that a module takes from the package."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "limbeck":
            for alias in node.names:
                place = f"{node.module}.{alias.name}".split(".")
                yield place[1], alias.name, node.lineno


def test_imports_point_one_way():
    wrong = []
    for path, tree in modules():
        own = part_of(path)
        if own in ("__init__", "__main__"):
            continue
        for part, name, line in imported(tree):
            if part in ORDER and ORDER.index(part) > ORDER.index(own):
                wrong.append(f"{path.relative_to(ROOT)}:{line} imports {name} from {part}")
    assert not wrong, wrong


def asks_for_a_kind(node: ast.AST) -> bool:
    """`isinstance(x, DiPair)`, `matcher.kind == ...`, `spec.kind in ...`."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "isinstance":
        return any(isinstance(part, ast.Name) and part.id in ARCHITECTURES for part in ast.walk(node.args[1]))
    if isinstance(node, ast.Compare):
        return any(_is_a_matchers_kind(side) for side in (node.left, *node.comparators))
    return False


def _is_a_matchers_kind(node: ast.AST) -> bool:
    if not (isinstance(node, ast.Attribute) and node.attr == "kind"):
        return False
    owner = node.value.attr if isinstance(node.value, ast.Attribute) else getattr(node.value, "id", "")
    return owner in MATCHERS


def test_nothing_outside_matchers_asks_for_a_kind():
    wrong = []
    for path, tree in modules():
        if part_of(path) == "matchers":
            continue
        wrong += [f"{path.relative_to(ROOT)}:{node.lineno}" for node in ast.walk(tree) if asks_for_a_kind(node)]
        names = [name for part, name, _ in imported(tree) if part == "matchers" and name in ARCHITECTURES]
        wrong += [f"{path.relative_to(ROOT)} imports {name}" for name in names]
    assert not wrong, wrong


def test_these_tests_notice_what_they_are_for():
    for text in (
        "isinstance(x, DiPair)",
        "isinstance(x, (str, ColBERT))",
        "matcher.kind == 'dipair'",
        "'a' in spec.kind",
    ):
        assert any(asks_for_a_kind(node) for node in ast.walk(ast.parse(text))), text
    for text in ("isinstance(x, str)", "row.kind == 'student'", "facts.kind == 'flat'"):
        assert not any(asks_for_a_kind(node) for node in ast.walk(ast.parse(text))), text
