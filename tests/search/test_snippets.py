from __future__ import annotations

from limbeck.search.analyzer import Words
from limbeck.search.snippets import snippet

LONG = "nothing to see here " * 30 + "Copying the files, one file at a time. " + "and so it goes on " * 30


def joined(pieces: list[tuple[str, bool]]) -> str:
    return "".join(text for text, _ in pieces)


def test_words_of_the_query_are_marked_by_their_stems() -> None:
    pieces = snippet(Words(), "how do I copy files", "Copies of a  file,\nand a copy_file.")
    assert joined(pieces) == "Copies of a file, and a copy_file."
    assert [text for text, marked in pieces if marked] == ["Copies", "file", "copy", "file"]
    assert joined(snippet(Words(), "file", "What fits is shown from its start, though the word is the last: file")) == (
        "What fits is shown from its start, though the word is the last: file"
    )


def test_a_long_text_is_shown_where_most_of_the_words_are() -> None:
    pieces = snippet(Words(), "copy file", LONG, 100)
    text = joined(pieces)
    assert text.startswith("... ") and text.endswith(" ...") and len(text) <= 108
    assert [word for word, marked in pieces if marked] == ["Copying", "files", "file"]
    assert text.removeprefix("... ").removesuffix(" ...") in LONG


def test_without_a_word_the_start_is_shown() -> None:
    assert joined(snippet(Words(), "xylophone", LONG, 50)).startswith("nothing to see here nothing")
    assert snippet(Words(), "xylophone", "") == []
    assert joined(snippet(Words(), "x", "a" * 500, 50)) == "a" * 50 + " ..."
