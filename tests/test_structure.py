"""What the design promises of the code's shape: imports point one way, and no code outside matchers asks for a kind."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import limbeck

ROOT = Path(limbeck.__file__).parent
# Text goes in at `data` and becomes encodings, scores and numbers; a part imports only what stands before it.
ORDER = (
    "errors signals lazy printable processor progress console files sealed file_list plugins data stores objectives "
    "matchers runtimes generation search scoring evaluation report recipe training runs api cli"
).split()
ARCHITECTURES = {
    "DualEncoder", "CrossEncoder", "ColBERT", "DiPair", "PolyEncoder", "Siamese", "SentenceT5", "Virt", "DeFormer",
}  # fmt: skip
MATCHERS = {
    "matcher",
    "student",
    "teacher",
    "model",
    "spec",
    "config",
    "trained",
}  # what variables that hold one are called

OF_ONE_TASK = {f"{task}{what}" for task in ("Ranking", "Pair") for what in ("Data", "Task", "Result", "Bench", "Lists")}


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


def tells_ranking_from_pairs(node: ast.AST) -> bool:
    """`isinstance(x, PairData)`, `type(x) is RankingTask`, `metrics.task == "pairs"`, a flag such as `task.ranks`."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("isinstance", "issubclass"):
        return any(_names_one_of_the_two(part) for part in ast.walk(node.args[1]))
    if isinstance(node, ast.Compare):
        sides = [part for side in (node.left, *node.comparators) for part in ast.walk(side)]
        asks_a_task = any(getattr(part, "attr", getattr(part, "id", "")) == "task" for part in sides)
        by_name = asks_a_task and any(isinstance(part, ast.Constant) and part.value == "pairs" for part in sides)
        return by_name or any(_names_one_of_the_two(part) for part in sides)
    if isinstance(node, ast.MatchClass):
        return _names_one_of_the_two(node.cls)
    return isinstance(node, ast.Attribute) and node.attr in ("ranks", "is_ranking", "is_pairs")


def _names_one_of_the_two(node: ast.AST) -> bool:
    return getattr(node, "attr", getattr(node, "id", "")) in OF_ONE_TASK


def test_ranking_and_pairs_are_distinguished_in_one_place():
    found = {
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path, tree in modules()
        for node in ast.walk(tree)
        if tells_ranking_from_pairs(node)
    }
    assert [place.partition(":")[0] for place in found] == ["data/by_kind.py"], sorted(found)


def test_only_the_choice_of_a_task_knows_both_tasks():
    """What imports both classes of a pair could tell them apart; `open_task` does so by asking the data."""
    wrong = [
        f"{path.relative_to(ROOT)} imports {name}"
        for path, tree in modules()
        if path.relative_to(ROOT).as_posix() != "runs/open_task.py"
        for part, name, _ in imported(tree)
        if name in ("RankingTask", "PairTask") and not _beside_its_task(path)
    ]
    assert not wrong, wrong


def _beside_its_task(path: Path) -> bool:
    """The files that a task consists of take it for a type."""
    return path.stem in ("ranking_bench", "pair_bench", "analyse", "example_answers")


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
    for text in (
        "isinstance(data, PairData)",
        "isinstance(result, (str, pairs.PairResult))",
        "type(task) is RankingTask",
        "metrics.task == 'pairs'",
        "request.task in (None, 'pairs')",
        "if task.ranks: pass",
        "match data:\n  case PairData(): pass",
    ):
        assert any(tells_ranking_from_pairs(node) for node in ast.walk(ast.parse(text))), text
    for text in ("isinstance(x, Task)", "data.task == 'rerank'", "how == 'pairs'", "task.bench"):
        assert not any(tells_ranking_from_pairs(node) for node in ast.walk(ast.parse(text))), text
