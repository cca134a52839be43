"""The report of `limbeck compress`: the line in its picture."""

from __future__ import annotations

from limbeck.report.compression import _rising


def test_the_line_of_the_front_only_rises() -> None:
    static, bm25, int8, teacher = (0.06, 0.64), (0.24, 0.58), (1.3, 0.65), (8.8, 0.65)
    assert _rising([teacher, bm25, int8, static]) == [static, int8]
    assert _rising([(1.0, 0.5), (1.0, 0.6)]) == [(1.0, 0.6)]
    assert _rising([]) == []
