"""Split text into the words that BM25 counts: lower case, without stop words, stemmed.

English is treated as in Lucene's EnglishAnalyzer, which papers use: Porter's stemmer and 33 stop words. Words are runs
of two or more letters and digits; an underscore separates words, so that "copy a file" finds `copy_file`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import Stemmer

from limbeck.errors import LimbeckError, did_you_mean

if TYPE_CHECKING:
    import bm25s

_STEMMERS = {"english": "porter"}
_WORD = r"[^\W_]{2,}"
# Vowel signs and points are not letters for Python's regular expressions, but they are parts of words.
_POINTED_WORD = r"(?:[^\W_]|[\u0591-\u05c7\u064b-\u065f\u0670\u0900-\u0963\u0b82-\u0bcd])+"
_POINTED = ("arabic", "hindi", "nepali", "persian", "tamil", "yiddish")
_STOP_WORDS = (
    "danish",
    "dutch",
    "english",
    "french",
    "german",
    "italian",
    "norwegian",
    "portuguese",
    "russian",
    "spanish",
    "swedish",
    "turkish",
)


class Words:
    """How to split texts of one language. Languages are PyStemmer's; some have no list of stop words."""

    def __init__(self, language: str = "english") -> None:
        known = Stemmer.algorithms()
        if language not in known:
            raise LimbeckError(f"unknown language {language!r} for BM25; {did_you_mean(language, known)}")
        self.language = language
        self._pattern = _POINTED_WORD if language in _POINTED else _WORD
        self._stop_words = language if language in _STOP_WORDS else None
        self._stemmer = Stemmer.Stemmer(_STEMMERS.get(language, language))

    def tokenizer(self) -> bm25s.tokenization.Tokenizer:
        """A tokeniser with an empty vocabulary that grows as it reads."""
        import bm25s

        return bm25s.tokenization.Tokenizer(
            splitter=re.compile(self._pattern).findall, stopwords=self._stop_words, stemmer=self._stemmer
        )

    def stems(self, text: str) -> list[str]:
        """The stems of a text, in order and with repeats."""
        return self._stems([text])[0]

    def spans(self, text: str) -> list[tuple[int, int, str]]:
        """The position of each counted word in a text, with its stem: (start, end, stem)."""
        matches = list(re.finditer(self._pattern, text))
        words = list(dict.fromkeys(match.group().lower() for match in matches))
        stems = dict(zip(words, self._stems(words), strict=True))  # one call: each call is slow
        return [(match.start(), match.end(), stem) for match in matches for stem in stems[match.group().lower()][:1]]

    def _stems(self, texts: list[str]) -> list[list[str]]:
        if not texts:
            return []
        import bm25s

        return bm25s.tokenize(
            texts,
            token_pattern=self._pattern,
            stopwords=self._stop_words,
            stemmer=self._stemmer,
            return_ids=False,
            show_progress=False,
        )
