from __future__ import annotations

from limbeck.runs.compress.front import Offer, dominates, front, meets, recommend
from limbeck.runs.compress.limits import Limits


def offer(name: str, quality: float, ms: float, kind: str = "student", size: float | None = None, besides: float = 0.0):
    return Offer(name, kind, quality, ms, ms + besides, size, kept=quality / 0.8)


TEACHER = offer("teacher", 0.8, 10, "teacher")
INT8 = offer("teacher, int8", 0.79, 4, "baseline")
BM25 = offer("BM25", 0.5, 0.3, "baseline")
STATIC, TWO, THREE = offer("static", 0.7, 0.04), offer("2 layers", 0.77, 1), offer("3 layers", 0.765, 1.5)
ALL = [TEACHER, INT8, BM25, STATIC, TWO, THREE]


def test_the_front_has_what_no_other_dominates_from_fast_to_slow():
    assert [one.name for one in front(ALL)] == ["static", "2 layers", "teacher, int8", "teacher"]


def test_equal_offers_do_not_dominate_each_other():
    assert not dominates(TWO, offer("twin", 0.77, 1))
    assert len(front([TWO, offer("twin", 0.77, 1)])) == 2


def test_a_smaller_index_keeps_an_offer_on_the_front_if_both_sizes_are_known():
    large, small = offer("large", 0.8, 1, size=1536), offer("small", 0.7, 1, size=96)
    assert not dominates(large, small)
    assert dominates(large, offer("unknown", 0.7, 1))


def test_the_time_besides_counts_in_the_comparison_and_not_in_the_budget():
    dense = offer("dense", 0.5, 0.2, besides=0.2)
    assert dominates(BM25, dense)
    assert meets(dense, Limits(ms=0.25))


def test_without_wishes_the_fastest_that_keeps_95_percent_is_recommended():
    assert recommend(ALL, Limits()) == TWO
    assert recommend(ALL, Limits(keep=0.85)) == STATIC


def test_within_a_budget_the_best_is_recommended():
    assert recommend(ALL, Limits(ms=2)) == TWO
    assert recommend(ALL, Limits(ms=0.5)) == STATIC
    assert recommend([STATIC, THREE], Limits(ms=2, keep=0.95)) == THREE


def test_if_nothing_is_right_the_nearest_is_recommended():
    assert recommend(ALL, Limits(ms=0.5, keep=0.99)) == STATIC  # within the budget
    assert recommend(ALL, Limits(keep=0.99)) == TWO  # the best
    assert recommend(ALL, Limits(ms=0.01)) == STATIC  # the fastest
    assert recommend([TEACHER, BM25], Limits()) is None


def test_without_a_student_within_the_budgets_the_one_least_beyond_them_is_nearest():
    small, fast = offer("small", 0.7, 2, size=600), offer("fast", 0.8, 0.1, size=6000)
    assert recommend([small, fast], Limits(bytes=500)) == small
    assert recommend([small, fast], Limits(ms=0.05, bytes=500)) == fast  # 12 times too large, the other 40 times slow
    assert recommend([small, fast], Limits(ms=0.05)) == fast
    unknown = offer("unknown", 0.9, 0.01)
    assert recommend([small, unknown], Limits(bytes=500)) == small
