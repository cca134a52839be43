"""Recall by answer strings: a query counts as found if one of its answers occurs in a retrieved passage.

This is DPR's relaxed recall (its top-k accuracy). Texts and answers are decomposed (Unicode NFD), split into words
(letters, digits and marks) and single other characters, and lower-cased. An answer occurs if all of its tokens appear
consecutively. The title of a passage does not count. Each query gets 1 or 0, so two runs can be compared per query.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice

import numpy as np

from limbeck.data.dataset import RankingData, ranked
from limbeck.errors import LimbeckError
from limbeck.evaluation.measure_names import needs_answers

_TOKEN = re.compile("w+|o")


class _Kinds(dict[int, str]):
    """The class of a character: part of a word, a token by itself, or nothing (space, control)."""

    def __missing__(self, code: int) -> str:
        category = unicodedata.category(chr(code))[0]
        self[code] = kind = "w" if category in "LNM" else " " if category in "ZC" else "o"
        return kind


_KINDS = _Kinds()


def answer_tokens(text: str) -> list[str]:
    """The tokens of DPR's SimpleTokenizer, uncased.

    >>> answer_tokens("It's Zoë's")
    ['it', "'", 's', 'zoë', "'", 's']
    """
    text = unicodedata.normalize("NFD", text)
    return [text[found.start() : found.end()].lower() for found in _TOKEN.finditer(text.translate(_KINDS))]


def has_answer(text: str, answers: Iterable[Sequence[str]]) -> bool:
    """Whether a text contains the tokens of an answer consecutively; an answer without tokens never occurs."""
    tokens = answer_tokens(text)
    for answer in answers:
        wanted = list(answer)
        places = (place for place, token in enumerate(tokens) if wanted and token == wanted[0])
        if any(tokens[place : place + len(wanted)] == wanted for place in places):
            return True
    return False


def answer_recalls(
    run: Mapping[str, Mapping[str, float]], query_ids: Sequence[str], cutoffs: Sequence[int], data: RankingData
) -> dict[int, np.ndarray]:
    """Cutoff -> for each query, 1 if its best passages contain an answer, else 0: [queries]."""
    most = max(cutoffs)
    ranks = np.array([_first(run.get(key, {}), data.answers.get(key, []), most, data) for key in query_ids])
    return {cutoff: (ranks < cutoff).astype(np.float64) for cutoff in cutoffs}


def _first(scores: Mapping[str, float], answers: Sequence[str], most: int, data: RankingData) -> float:
    """The rank, starting at 0, of the first passage with an answer."""
    wanted = [answer_tokens(answer) for answer in answers]
    for rank, document in enumerate(islice(ranked(scores) if wanted else (), most)):
        if has_answer(data.corpus.record_at(data.corpus.row(document))[2], wanted):
            return rank
    return np.inf


def require_answers(data: RankingData, measures: Iterable[str], query_ids: Iterable[str]) -> None:
    """Refuse recall by answers if the data have no answers."""
    wanted = next(filter(needs_answers, measures), None)
    if wanted is None or any(data.answers.get(query) for query in query_ids):
        return
    known = "for these queries" if data.answers else "at all"
    remedy = "use recall@k, or data with answers (DPR's question files)"
    raise LimbeckError(f"{data.name}: has no answers {known}, and {wanted} looks for them; {remedy}")
