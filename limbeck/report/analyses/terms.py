"""The words that a query and a document share, by their stems."""

from __future__ import annotations

from limbeck.report.blocks import Marked
from limbeck.search.analyzer import Words


def shared_stems(words: Words, query: str, document: str) -> set[str]:
    """The stems that occur in both texts; stop words do not count."""
    return set(words.stems(query)) & set(words.stems(document))


def shared_part(words: Words, query: str, document: str) -> float:
    """The share of the query's distinct stems that the document has; 0 for a query of stop words only."""
    asked = set(words.stems(query))
    return len(asked & set(words.stems(document))) / len(asked) if asked else 0.0


def marked(words: Words, text: str, stems: set[str]) -> Marked:
    """A text with the words of these stems marked."""
    return Marked(text, [(start, end) for start, end, stem in words.spans(text) if stem in stems])
