"""A teacher's scores of pairs on disk, in the same store as its scores of rankings.

The ids of a pair are digests of its first text and of the others, so equal texts share one score.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from limbeck.data import Pair
from limbeck.errors import LimbeckError, bad_input
from limbeck.files import digest, read_json
from limbeck.matchers import Matcher
from limbeck.stores import ScoreStore, encodings, score_with_store
from limbeck.training.annotate import BLOCK
from limbeck.training.processes import main_first

Ids = tuple[str, str]


def open_pair_scores(place: Path, teacher: Matcher) -> ScoreStore:
    """The store of a teacher's raw logits, keyed by the teacher's identity."""
    manifest = place / "manifest.json"
    if manifest.exists() and read_json(manifest).get("kind") == encodings.KIND:
        raise bad_input(
            place, "contains pair scores of an earlier version of limbeck", "remove it to score the pairs again"
        )
    return ScoreStore.open(place, {**teacher.identity(), "ids": "digests of texts"}, teacher.outputs)


def pair_scores(teacher: Matcher, pairs: Sequence[Pair], store: ScoreStore) -> np.ndarray:
    """Logits [pairs] or [pairs, classes]; stored ones are not computed again."""
    ids = [ids_of(pair.texts) for pair in pairs]
    texts = dict(zip(ids, (pair.texts for pair in pairs), strict=True))

    def score(block: list[Ids]) -> np.ndarray:
        scores = teacher.score([texts[each] for each in block]).reshape(len(block), -1)
        _refuse_non_finite(scores, [texts[each] for each in block])
        return scores

    with main_first() as main:
        if main:
            score_with_store(store, ((first, [others]) for first, others in ids), score, BLOCK, len(ids))
    store.refresh()
    return store.get(ids)


def ids_of(texts: tuple[str, ...]) -> Ids:
    """One id for the first text, one for the others; different texts have different ids."""
    first, *others = (text.encode("utf-8", "surrogatepass") for text in texts)
    return digest(first), digest(*others)


def _refuse_non_finite(scores: np.ndarray, texts: Sequence[tuple[str, ...]]) -> None:
    finite = np.isfinite(scores).all(axis=1)
    if not finite.all():
        shown = " / ".join(text[:40] for text in texts[int(np.argmin(finite))])
        raise LimbeckError(f"the teacher's score of the pair {shown!r} is not a finite number; use another teacher")
