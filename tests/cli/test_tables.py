from __future__ import annotations

import re

import pytest
from rich.console import Console

from limbeck.cli.tables import results_table
from limbeck.runs.results import ResultRow

ROWS = [
    ResultRow(
        "teacher", "teacher", {"ndcg@10": 0.905, "search recall@100": 0.985}, pairs_per_second=36.0, size_mb=91.0
    ),
    ResultRow(
        "0.1 * one_hot + 0.9 * kl(tau_teacher=0.25)",
        "student",
        {"ndcg@10": 0.868, "search recall@100": 0.98},
        pairs_per_second=8468.0,
        spread={"ndcg@10": 0.006},
        significance={"against": "one_hot", "difference": -0.0004, "p": 0.86},
    ),
]


def shown(rows, width) -> str:
    console = Console(width=width)
    with console.capture() as captured:
        console.print(results_table(rows, width))
    return captured.get()


@pytest.mark.parametrize("width", [60, 80, 200])
def test_numbers_are_never_cut(width):
    text = shown(ROWS, width)
    assert "…" not in text
    for number in ("0.905", "0.985", "0.868", "±0.006", "0.980", "8,468", "91 MB", "-0.000", "(p=0.86)"):
        assert number in text
    assert max(map(len, text.splitlines())) <= width
    assert ("0.868 ±0.006" in text) == (width == 200)


def test_an_empty_column_is_left_out():
    heading = shown(ROWS, 200).splitlines()[0]
    assert "ms/query" not in heading and re.search(r"pairs/s\s+size", heading)
