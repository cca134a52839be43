from __future__ import annotations

import numpy as np

from limbeck.evaluation.ranking_result import RankingResult
from limbeck.runs.cautions import cautions
from limbeck.runs.results import Measured, ResultRow


def measured(name, kind, value, speedup=None, teacher=None):
    result = RankingResult(("q",), {"ndcg@10": np.array([value])}, 0, 0)
    return Measured(ResultRow(name, kind, {"ndcg@10": value}, speedup=speedup), result, {}, teacher=teacher)


def test_students_below_a_baseline_and_slow_ones_are_named():
    rows = [measured("teacher", "teacher", 0.6), measured("BM25", "baseline", 0.434)]
    rows += [measured("minilm, as it is", "baseline", 0.2), measured("student", "student", 0.247, speedup=0.5)]
    below, slower = cautions(rows)
    assert below.startswith("student (0.247) ends below BM25 (0.434) in nDCG@10: check the loss")
    assert slower == "student is slower than its teacher (0.5 times its speed)."


def test_a_line_names_three_students_and_counts_the_others():
    rows = [measured("BM25", "baseline", 0.5), *(measured(f"s{i}", "student", 0.1 * i) for i in range(5))]
    (line,) = cautions([*rows, measured("good", "student", 0.7, speedup=3.0)])
    assert line.startswith("s0 (0.000), s1 (0.100), s2 (0.200) and 2 more end below BM25")


def test_students_are_compared_with_the_baselines_of_their_own_data():
    rows = [measured("BM25, with a", "baseline", 0.5, teacher="teacher of a")]
    assert not cautions([*rows, measured("b", "student", 0.1, teacher="teacher of b")])
