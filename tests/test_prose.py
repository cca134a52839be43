"""Docs, help texts, messages and docstrings are in plain English, and lines of Markdown prose are short."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])
MODULES = sorted((ROOT / "limbeck").rglob("*.py"))
LONGEST = 120
ARCHAIC = re.compile(
    r"\b(?:anew|thereof|therein|whereby|hitherto|mends?|mended|stands? beside|lies beside|is told from|"
    r"cannot be told from|which alone|gives way|took \d+ workers with it|is no (?:index|file|model|share))\b",
    re.IGNORECASE,
)


def prose_lines(page: str) -> list[tuple[int, str]]:
    """Numbered lines outside code blocks and tables."""
    found, in_code = [], False
    for number, line in enumerate(page.splitlines(), 1):
        if line.lstrip().startswith("```"):
            in_code = not in_code
        elif not in_code and not line.startswith(("    ", "|")):
            found.append((number, line))
    return found


def written_in(module: str) -> list[tuple[int, str]]:
    """The strings of a module with their lines: messages, help texts and docstrings."""
    strings = [node for node in ast.walk(ast.parse(module)) if isinstance(node, ast.Constant)]
    return [(node.lineno, node.value) for node in strings if isinstance(node.value, str)]


def archaic(texts: list[tuple[int, str]]) -> list[str]:
    return [f"line {number}: {found[0]!r}" for number, text in texts for found in ARCHAIC.finditer(text)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_has_short_lines_and_no_archaic_words(page):
    lines = prose_lines(page.read_text())
    assert [f"line {number}: {len(line)}" for number, line in lines if len(line) > LONGEST] == []
    assert archaic(lines) == []


@pytest.mark.parametrize("module", MODULES, ids=lambda module: str(module.relative_to(ROOT)))
def test_what_a_module_says_has_no_archaic_words(module):
    assert archaic(written_in(module.read_text())) == []


def test_long_lines_and_archaic_words_are_found():
    page = "short\n```\n" + "x" * 200 + "\n```\n| " + "y" * 200 + " |\n" + "z" * 121 + "\n"
    assert [number for number, line in prose_lines(page) if len(line) > LONGEST] == [6]
    assert archaic(written_in('raise ValueError(f"{name} is damaged; mend it and build anew")')) == [
        "line 1: 'mend'",
        "line 1: 'anew'",
    ]
    assert archaic([(1, "recommend a model and amend the recipe")]) == []
