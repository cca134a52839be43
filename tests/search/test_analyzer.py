from limbeck.search.analyzer import Words


def test_spans_give_the_positions_of_stems() -> None:
    text = "The copied_Files of <b>Files</b> and a copy"
    spans = Words().spans(text)
    assert [(text[start:end], stem) for start, end, stem in spans] == [
        ("copied", "copi"),
        ("Files", "file"),
        ("Files", "file"),
        ("copy", "copi"),
    ]


def test_spans_hold_the_stems_that_bm25_counts() -> None:
    words = Words()
    text = "Return the LARGEST of two numbers; numbers_like 3.14 or x are read as they stand."
    assert [stem for _, _, stem in words.spans(text)] == words.stems(text)


def test_pointed_words_are_whole() -> None:
    text = "किताब पढ़ना"
    assert [text[start:end] for start, end, _ in Words("hindi").spans(text)] == text.split()
