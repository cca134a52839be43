"""The part of a passage that answers a query, with the query's words marked, for people to read."""

from __future__ import annotations

from limbeck.search.analyzer import Words

Piece = tuple[str, bool]  # a text, and whether it is a word of the query

LENGTH = 240
_BEFORE = 40  # characters of context before the first marked word


def snippet(words: Words, query: str, text: str, length: int = LENGTH) -> list[Piece]:
    """The `length` characters of a text with most of the query's words, as pieces; the beginning if none occurs."""
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
    """Where to begin to show most different words: a little before the first of them, at the start of a word."""
    best, count = 0, 0
    for start, _, _ in marks:
        begin = max(0, start - _BEFORE)
        seen = len({stem for place, end, stem in marks if begin <= place and end <= begin + length})
        if seen > count:
            best, count = begin, seen
    return text.find(" ", best) + 1 if best else 0
