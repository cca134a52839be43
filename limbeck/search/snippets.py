"""The piece of a passage that answers a query, with the query's words marked, for a person to read."""

from __future__ import annotations

from limbeck.search.analyzer import Words

Piece = tuple[str, bool]  # some text, and whether it is a word of the query

LENGTH = 240
_BEFORE = 40  # characters of context before the first word that is marked


def snippet(words: Words, query: str, text: str, length: int = LENGTH) -> list[Piece]:
    """The `length` characters of a text that hold most of the query's words, as pieces; the start where none occurs."""
    text = " ".join(text.split())
    wanted = set(words.stems(query))
    marks = [(start, end, stem) for start, end, stem in words.spans(text) if stem in wanted]
    first = _first(marks, text, length) if len(text) > length else 0
    last = min(len(text), first + length)
    if last < len(text):
        space = text.rfind(" ", first + length // 2, last)
        last = space if space > 0 else last
    pieces: list[Piece] = [("... ", False)] if first else []
    at = first
    for start, end, _ in marks:
        if start >= first and end <= last:
            pieces += [(text[at:start], False), (text[start:end], True)]
            at = end
    pieces.append((text[at:last] + (" ..." if last < len(text) else ""), False))
    return [piece for piece in pieces if piece[0]]


def _first(marks: list[tuple[int, int, str]], text: str, length: int) -> int:
    """Where to begin so that most different words are seen; a little before the first of them, at a word's start."""
    best, count = 0, 0
    for start, _, _ in marks:
        begin = max(0, start - _BEFORE)
        seen = len({stem for place, end, stem in marks if begin <= place and end <= begin + length})
        if seen > count:
            best, count = begin, seen
    return text.find(" ", best) + 1 if best else 0
