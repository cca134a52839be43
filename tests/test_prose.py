"""Docs, help texts, messages, docstrings and comments are in plain English, and lines of Markdown prose are short."""

import ast
import io
import re
import tokenize
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])
MODULES = sorted((ROOT / "limbeck").rglob("*.py"))
LONGEST = 120
ARCHAIC = re.compile(
    r"\b(?:anew|thereof|therein|whereby|hitherto|mends?|mended|stands? beside|lies beside|is told from|"
    r"cannot be told from|which alone|gives way|took \d+ workers with it|"
    r"(?<!there )is no (?:index|file|model|share))\b",
    re.IGNORECASE,
)
# Phrases that have to be read twice; a module may not use them in strings or comments.
COMPRESSED = re.compile(
    r"\b(?:is told|are told|told apart|told of|goes by|go by its|is to be|are to be|to be raised|held against|"
    r"that alone|these alone|those alone|left alone|leaves? alone|has a part in|have a part in|(?:takes?|has) no part|"
    r"counts? for nothing|where there (?:is|are)|where it has|whoever|likewise|be it|be they|cut short|"
    r"as it was left|it was left|came about|comes about|be had|would else|else be|out of luck|"
    r"what (?:it|they) (?:takes?|leaves?) of|however (?:many|long|large|small)|in somebody)\b",
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
    """The strings and comments of a module with their lines: messages, help texts, docstrings and comments."""
    nodes = [node for node in ast.walk(ast.parse(module)) if isinstance(node, ast.Constant)]
    strings = [(node.lineno, node.value) for node in nodes if isinstance(node.value, str)]
    tokens = tokenize.generate_tokens(io.StringIO(module).readline)
    return strings + [(token.start[0], token.string) for token in tokens if token.type == tokenize.COMMENT]


def archaic(texts: list[tuple[int, str]], *others: re.Pattern[str]) -> list[str]:
    """The archaic words in texts, and the matches of other patterns. A phrase may continue on the next line."""
    lines = [(number, " ".join(text.split())) for number, text in texts]
    banned = (ARCHAIC, *others)
    return [
        f"line {number}: {found[0]!r}" for number, line in lines for each in banned for found in each.finditer(line)
    ]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_has_short_lines_and_no_archaic_words(page):
    lines = prose_lines(page.read_text())
    assert [f"line {number}: {len(line)}" for number, line in lines if len(line) > LONGEST] == []
    assert archaic(lines) == []


@pytest.mark.parametrize("module", MODULES, ids=lambda module: str(module.relative_to(ROOT)))
def test_strings_and_comments_of_a_module_are_plain_english(module):
    assert archaic(written_in(module.read_text()), COMPRESSED) == []


def test_long_lines_and_archaic_words_are_found():
    page = "short\n```\n" + "x" * 200 + "\n```\n| " + "y" * 200 + " |\n" + "z" * 121 + "\n"
    assert [number for number, line in prose_lines(page) if len(line) > LONGEST] == [6]
    assert archaic(written_in('raise ValueError(f"{name} is damaged; mend it and build anew")')) == [
        "line 1: 'mend'",
        "line 1: 'anew'",
    ]
    assert archaic([(1, "recommend a model and amend the recipe")]) == []


def test_compressed_phrases_are_found_in_comments_and_across_lines():
    module = 'LISTS = 1  # those alone count\n\ndef score():\n    """Zero where\n    there is no document."""\n'
    assert archaic(written_in(module), COMPRESSED) == ["line 4: 'where there is'", "line 1: 'those alone'"]
    assert archaic([(1, "only the user may be hidden, however; it is told by nobody")], COMPRESSED) == [
        "line 1: 'is told'"
    ]
