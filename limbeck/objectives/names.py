"""Objectives by name: `"0.1 * softmax_ce(tau_teacher=0.25)"` and back.

The grammar is a part of Python's: a weight, `*`, a name, and named arguments with literal values. It is parsed as a
syntax tree and never evaluated. A bare word is a string, and `true` / `false` have their YAML meaning,
so `margin_mse(pairs=all)` and `virt(layers=first:2)` need no quotes within quotes.
"""

from __future__ import annotations

import ast
import re
from dataclasses import fields, replace

from limbeck.errors import LimbeckError, did_you_mean
from limbeck.objectives.base import LARGEST, OBJECTIVES, Objective, is_number
from limbeck.plugins import load_plugins

FORM = "write it as in 'mse', '0.1 * one_hot' or 'softmax_ce(tau_teacher=0.25)'"
COUNTED = re.compile(r"(?<![\w'\"])([a-z]+:\d+)(?![\w'\"])")  # a word and a number, such as first:2
WORDS = {"true": True, "false": False, "null": None}


def parse(text: str) -> tuple[float, Objective]:
    """The weight (1 unless given) and the objective that `text` names.

    >>> parse("0.1 * one_hot(tau=2)")
    (0.1, one_hot(tau=2))
    >>> str(parse("mse()")[1])
    'mse'
    """
    tree = _tree(text, f"objective {text!r} cannot be read; {FORM}")
    if isinstance(tree, ast.BinOp) and isinstance(tree.op, ast.Mult):
        return _weight(tree.left, text), _objective(tree.right, text)
    return 1.0, _objective(tree, text)


def with_argument(text: str, argument: str, value: str) -> str:
    """The objective with an argument set to the value that a recipe would have; unchanged if it has no such argument.

    >>> with_argument("0.1 * one_hot", "tau", "2")
    '0.1 * one_hot(tau=2)'
    """
    weight, objective = parse(text)
    if argument not in argument_names(objective):
        return text
    tree = _tree(value, f"{argument}={value} cannot be read; give a number or a word")
    changed = replace(objective, **{argument: _value(tree, f"{objective.name}({argument}={value})")})  # type: ignore[type-var]
    return f"{weight!r} * {changed}" if weight != 1 else str(changed)


def argument_names(objective: Objective | type[Objective]) -> list[str]:
    return [field.name for field in fields(objective)]  # type: ignore[arg-type]  # every objective is a dataclass


def _tree(text: str, problem: str) -> ast.expr:
    try:
        return ast.parse(COUNTED.sub(r"'\1'", text.strip()), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise LimbeckError(problem) from error


def _weight(tree: ast.expr, text: str) -> float:
    weight = _value(tree, text)
    if not is_number(weight, 0, LARGEST):
        raise LimbeckError(f"objective {text!r} has weight {weight!r}; give a number from 0 to {LARGEST:g}")
    return float(weight)


def _objective(tree: ast.expr, text: str) -> Objective:
    name, arguments = (tree.func, tree.keywords) if isinstance(tree, ast.Call) else (tree, [])
    if not isinstance(name, ast.Name):
        raise LimbeckError(f"objective {text!r} cannot be read; {FORM}")
    if isinstance(tree, ast.Call) and tree.args:
        raise LimbeckError(f"objective {text!r} has an argument without a name; {FORM}")
    if name.id not in OBJECTIVES:
        load_plugins()
    kind = OBJECTIVES.get(name.id)
    if kind is None:
        raise LimbeckError(f"unknown objective {name.id!r}; {did_you_mean(name.id, list(OBJECTIVES))}")
    return kind(**_arguments(arguments, kind, text))


def _arguments(keywords: list[ast.keyword], kind: type[Objective], text: str) -> dict[str, object]:
    known = argument_names(kind)
    given: dict[str, object] = {}
    for keyword in keywords:
        if keyword.arg is None or keyword.arg not in known:
            remedy = did_you_mean(str(keyword.arg), known) if known else "it takes none"
            raise LimbeckError(f"objective {kind.__name__!r} has no argument {keyword.arg!r}; {remedy}")
        if keyword.arg in given:
            raise LimbeckError(f"objective {text!r} has {keyword.arg!r} twice; keep one of them")
        given[keyword.arg] = _value(keyword.value, text)
    return given


def _value(tree: ast.expr, text: str) -> object:
    if isinstance(tree, ast.Name):
        return WORDS.get(tree.id, tree.id)
    try:
        return ast.literal_eval(tree)
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError) as error:
        raise LimbeckError(f"objective {text!r} has a value that is neither a number nor a word; {FORM}") from error
