"""The ways without a model: words dropped and swapped, spans of documents."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from limbeck.generation.perturb import Perturb
from limbeck.generation.spans import LENGTHS, LONGEST, Spans, sentences

WORDS = [f"w{number}" for number in range(10)]
ROWS = [(f"q{number}", "", " ".join(WORDS)) for number in range(300)]


def changed(**how) -> list[list[str]]:
    return [text.split() for queries in Perturb(**how).write(ROWS) for text in queries]


def test_words_are_dropped_at_the_rate_asked_for_and_keep_their_order():
    found = changed(drop=0.3, swap=0.0)
    assert np.mean([len(words) for words in found]) == pytest.approx(7.0, abs=0.2)  # 600 texts of 10 words
    assert all(words == sorted(words) for words in found)


def test_neighbouring_words_are_swapped_and_none_is_lost():
    found = changed(drop=0.0, swap=0.3)
    assert all(sorted(words) == WORDS for words in found)
    moved = [sum(word != other for word, other in zip(words, WORDS, strict=True)) for words in found]
    assert all(abs(place - int(word[1:])) <= 1 for words in found for place, word in enumerate(words))
    # a word that was not moved by the one before it starts a swap with chance 0.3: s = 0.3 / 1.3 of 9 places
    assert np.mean(moved) == pytest.approx(2 * 9 * 0.3 / 1.3, rel=0.1)


@pytest.mark.parametrize(
    "how", [{"drop": 0.01, "swap": 0.0}, {"drop": 0.0, "swap": 0.01}, {"drop": 0.01, "swap": 0.01}]
)
def test_a_query_always_changes_a_little(how):
    found = changed(**how)
    assert all(words != WORDS for words in found)
    assert np.mean([len(words) for words in found]) > 8.8


def test_two_words_and_one():
    lists = Perturb(drop=0.9, swap=0.5, per_query=20).write([("a", "", "copy file"), ("b", "", "copy")])
    assert set(lists[0]) <= {"copy", "file", "file copy"} and len(set(lists[0])) > 1
    assert set(lists[1]) == {"copy"}  # nothing else can be made of it; it is left out as known


def test_perturbations_depend_only_on_seed_id_and_number():
    whole = Perturb().write(ROWS)
    assert Perturb().write(ROWS[7:8]) == whole[7:8]
    assert [queries[:2] for queries in Perturb(per_query=3).write(ROWS)] == whole
    assert Perturb(seed=1).write(ROWS) != whole


TEXT = "Copy the file first. Then open it, and read each line! Why? Because (of course) a closed file has no lines."


def test_a_span_is_a_sentence_or_some_words_of_one():
    inside = [" ".join(words) for words in sentences(f"On files\n\n{TEXT}")]
    assert inside == [
        "On files",
        "Copy the file first.",
        "Then open it, and read each line!",
        "Because (of course) a closed file has no lines.",
    ]
    whole = 0
    for number in range(300):
        for span in Spans(lengths=(2, 3)).write([(f"d{number}", "On files", TEXT)])[0]:
            assert any(span in sentence for sentence in inside), span
            assert span in inside or 1 <= len(span.split()) <= 3
            whole += span in inside
    assert 0.45 < whole / 600 < 0.75  # half, and the title, which is as long as a short span


def test_spans_are_as_long_as_the_queries_are():
    long = " ".join(f"w{number}" for number in range(200))
    rows = [(f"d{number}", "", long) for number in range(400)]
    lengths = Counter(len(span.split()) for spans in Spans(lengths=(4, 4, 4, 9)).write(rows) for span in spans)
    assert set(lengths) == {4, 9, LONGEST}
    assert lengths[4] / lengths[9] == pytest.approx(3, rel=0.3) and lengths[LONGEST] / 800 == pytest.approx(
        0.5, abs=0.08
    )
    assert {len(span.split()) for spans in Spans().write(rows) for span in spans} == {*LENGTHS, LONGEST}


def test_the_spans_of_a_document_come_from_different_sentences():
    text = "a1 a2 a3. b1 b2 b3. c1 c2 c3."
    for number in range(50):
        spans = Spans(per_query=3).write([(f"d{number}", "", text)])[0]
        assert {span[0] for span in spans} == set("abc")


def test_a_document_without_words_has_no_spans():
    assert Spans().write([("d", "", " "), ("e", "", "Copy.")]) == [["", ""], ["Copy.", "Copy."]]
