"""Teacher scores of pairs: kept in the score store, by the content of the texts."""

from __future__ import annotations

import numpy as np
import pytest

from limbeck.data import Pair
from limbeck.errors import LimbeckError
from limbeck.matchers import build, matcher_config
from limbeck.stores import EncodingStore, ScoreStore
from limbeck.training.pair_scores import ids_of, open_pair_scores, pair_scores

PAIRS = [
    Pair(("copy a file", "move a file"), 1),
    Pair(("open the page", "close the page"), 0),
    Pair(("copy a file", "move a file"), None),  # the same texts again
    Pair(("move a file", "copy a file"), None),
]


@pytest.fixture
def teacher(tiny_bert):
    return build(matcher_config(kind="cross_encoder", start=tiny_bert, query_length=8, document_length=8))


def test_scores_are_the_teachers_and_equal_texts_are_scored_once(teacher, tmp_path, monkeypatch):
    store = open_pair_scores(tmp_path / "scores", teacher)
    found = pair_scores(teacher, PAIRS, store)
    assert found.shape == (4,) and np.allclose(found, teacher.score([pair.texts for pair in PAIRS]), atol=1e-5)
    assert len(store) == 3
    monkeypatch.setattr(teacher, "score", lambda *_: pytest.fail("scored again"))
    again = open_pair_scores(tmp_path / "scores", teacher)
    assert np.array_equal(pair_scores(teacher, PAIRS[::-1], again), found[::-1])


def test_several_outputs_have_a_column_each(tiny_bert, tmp_path):
    spec = matcher_config(kind="cross_encoder", start=tiny_bert, outputs=3, query_length=8, document_length=8)
    teacher = build(spec)
    found = pair_scores(teacher, PAIRS, open_pair_scores(tmp_path / "scores", teacher))
    assert np.allclose(found, teacher.score([pair.texts for pair in PAIRS]), atol=1e-5) and found.shape == (4, 3)


def test_different_texts_have_different_ids():
    texts = [("a", "b"), ("b", "a"), ("a", "b", ""), ("a", "b", "c"), ("a", "bc"), ("ab", "c"), ("a", "b\x1fc")]
    assert len({ids_of(each) for each in texts}) == len(texts)
    assert ids_of(("a\ud800", "b")) != ids_of(("a", "b"))  # a lone surrogate, as damaged sources have


def test_scores_of_pairs_and_of_rankings_do_not_mix(teacher, tmp_path):
    ScoreStore.open(tmp_path / "scores", teacher.identity()).append(["q"], ["d"], [0.5])
    with pytest.raises(LimbeckError, match="ids is null there"):
        open_pair_scores(tmp_path / "scores", teacher)


def test_scores_of_an_earlier_version_are_refused_with_what_to_do(teacher, tmp_path):
    EncodingStore.open(tmp_path / "scores", {**teacher.identity(), "pairs": 1}, 1).append(["a\x1fb"], np.ones((1, 1)))
    with pytest.raises(LimbeckError, match="pair scores of an earlier version of limbeck; remove it to score"):
        open_pair_scores(tmp_path / "scores", teacher)


def test_a_score_that_is_not_finite_is_named_by_its_texts(teacher, tmp_path, monkeypatch):
    monkeypatch.setattr(teacher, "score", lambda pairs: np.full(len(pairs), np.nan))
    with pytest.raises(LimbeckError, match="the pair 'copy a file / move a file' is not a finite number"):
        pair_scores(teacher, PAIRS, open_pair_scores(tmp_path / "scores", teacher))
