"""What `import limbeck as lb` promises to a person at a prompt."""

from __future__ import annotations

import sys

import numpy as np
import pytest

import limbeck as lb
from limbeck.data.dataset import Pair, PairData, RankingData
from limbeck.data.texts import Texts
from limbeck.errors import LimbeckError
from limbeck.matchers import build, matcher_config
from limbeck.matchers.calibration import calibrate
from limbeck.progress import say

KINDS = {"dual_encoder": {}, "colbert": {"dim": 8}, "dipair": {"tokens": [2, 2], "dim": 16}}


def test_names_are_listed_before_they_are_imported():
    assert {"distill", "load", "load_data", "Recipe"} <= set(dir(lb))


@pytest.mark.parametrize("kind", KINDS)
def test_one_text_gives_one_vector(tiny_bert, kind):
    matcher = build(matcher_config(kind=kind, start=tiny_bert, query_length=8, document_length=8, **KINDS[kind]))
    for encode in (matcher.encode_query, matcher.encode_document):
        one, many = encode("copy a file"), next(iter(encode(["copy a file"])))
        np.testing.assert_array_equal(one, many)
    for wrong in ([1, 2], ["a", None], None, 7):
        with pytest.raises(LimbeckError, match="encode"):
            matcher.encode_query(wrong)


@pytest.mark.parametrize("kind", ["cross_encoder", *KINDS])
def test_an_invalid_pair_is_refused_in_one_line(tiny_bert, kind):
    settings = KINDS.get(kind, {})
    matcher = build(matcher_config(kind=kind, start=tiny_bert, query_length=8, document_length=8, **settings))
    for wrong in [
        ("a query", ["a document"]),
        ("a query",),
        (["a", "b"],),
        ([("a",)],),
        ([("a", 1)],),
        (None,),
        ([3],),
    ]:
        with pytest.raises(LimbeckError, match=r"score.*rank\(query, documents\)"):
            matcher.score(*wrong)
    assert matcher.score([("a query", "a document")]).shape == (1,)
    assert len(matcher.score([])) == 0


def test_a_calibrated_model_gives_probabilities(tiny_bert, tmp_path):
    pairs = [("copy a file", f"sort {word}") for word in "abcdefgh"]
    build(
        matcher_config(kind="dipair", start=tiny_bert, query_length=8, document_length=8, tokens=[2, 2], dim=16)
    ).save_pretrained(tmp_path / "m")
    with pytest.raises(LimbeckError, match="no calibration"):
        lb.load(tmp_path / "m").probabilities(pairs)
    scores = lb.load(tmp_path / "m").score(pairs)
    fitted = calibrate(scores, np.arange(8) % 2)
    fitted.save(tmp_path / "m")
    found = lb.load(tmp_path / "m").probabilities(pairs)
    np.testing.assert_allclose(found, fitted.probabilities(scores), rtol=1e-9)
    assert ((found > 0) & (found < 1)).all()


def test_the_repr_of_a_data_set_is_short():
    texts = Texts.build([(f"d{number}", "", "text") for number in range(50)])
    qrels = {"train": {f"q{number}": {"d1": 1} for number in range(5000)}}
    ranking = RankingData("mine", texts, texts, qrels)
    pairs = PairData("yours", {"train": [Pair(("a", "b"), 1)] * 5000})
    assert len(repr(ranking)) < 200 and "mine" in repr(ranking) and "train 5,000" in repr(ranking)
    assert repr(pairs) == "PairData('yours', pairs: train 5,000)"


@pytest.mark.parametrize(
    ("terminal", "argument", "shown"),
    [(True, None, True), (False, None, False), (True, False, False), (False, True, True)],
)
def test_distill_shows_progress_on_a_terminal(monkeypatch, capsys, terminal, argument, shown):
    import limbeck.runs.run as run

    monkeypatch.setattr(run, "distill", lambda *_: say("Training the student"))
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal)
    lb.distill("any", progress=argument)
    assert ("Training the student" in capsys.readouterr().err) == shown
