from limbeck.report.formatting import (
    cut,
    duration,
    listed,
    measure_title,
    p_value,
    share,
    short_names,
    signed,
    three_digits,
    times,
)


def test_nearly_all_is_not_written_as_all():
    assert [share(value) for value in (0.876, 0.9964, 1.0, 1.003, 1.02)] == ["88%", "99.6%", "100%", "100.3%", "102%"]


def test_measures_are_written_as_the_field_does() -> None:
    names = ["ndcg@10", "mrr@10", "recall@100", "auc", "spearman"]
    assert [measure_title(name) for name in names] == ["nDCG@10", "MRR@10", "Recall@100", "AUC", "Spearman"]


def test_durations_are_readable() -> None:
    assert [duration(s) for s in (0.52, 48, 252.4, 7512)] == ["0.52 s", "48 s", "4 min 12 s", "2 h 5 min"]


def test_numbers_keep_three_digits_and_no_exponent() -> None:
    assert [three_digits(v) for v in (0.68, 1.957, 41.26, 412.3, 25500)] == ["0.680", "1.96", "41.3", "412", "25,500"]
    assert [times(v) for v in (1.66, 210.4)] == ["1.7 times", "210 times"]
    assert [p_value(p) for p in (0.00002, 0.0312, 0.314)] == ["<\u00a00.001", "= 0.031", "= 0.31"]


def test_names_lose_their_brackets_unless_they_differ_only_there() -> None:
    assert short_names(["teacher (6 layers)", "BM25"]) == ["teacher", "BM25"]
    assert short_names(["m3se (2 layers)", "m3se (4 layers)"]) == ["m3se (2 layers)", "m3se (4 layers)"]


def test_a_long_text_is_cut_after_a_whole_word() -> None:
    assert cut("one  two\nthree", 20) == "one two three"
    assert cut("one two three", 11) == "one two …"


def test_signs_are_as_wide_as_each_other() -> None:
    assert signed(0.5) == "+0.50"
    assert signed(-0.0125, 3) == "−0.013"


def test_words_are_listed_as_in_a_sentence() -> None:
    assert [listed(words) for words in ([], ["a"], ["a", "b"], ["a", "b", "c"])] == ["", "a", "a and b", "a, b and c"]
