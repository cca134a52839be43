"""A kind that is made of sentence-transformers' modules keeps its name, its interaction and its weights on disk."""

from __future__ import annotations

import json
from typing import Literal

import numpy as np
import pytest
import torch
from torch import nn

from limbeck.errors import LimbeckError
from limbeck.file_list import NAME as MANIFEST
from limbeck.matchers import build, load, matcher_config
from limbeck.matchers.config import ARCHITECTURES, architecture
from limbeck.matchers.dual_encoder import DualEncoder, DualEncoderConfig
from limbeck.matchers.interactions import INTERACTIONS, Interaction, interaction

PAIRS = [("copy a file", "open the file"), ("sort", "a list of text")]


@pytest.fixture(autouse=True)
def _own_kind():
    """A dual encoder whose dot product has a weight for each dimension, known while these tests run."""

    @interaction
    class WeightedDot(Interaction):
        name = "weighted_dot"

        def __init__(self, dim):
            super().__init__()
            self.weights = nn.Parameter(torch.ones(dim))

        @property
        def arguments(self):
            return {"dim": len(self.weights)}

        def prepare(self, encoded, position):
            return (encoded,)

        def score(self, texts):
            return (texts[0][0] * self.weights * texts[1][0]).sum(-1, keepdim=True)

    class WeightedConfig(DualEncoderConfig):
        kind: Literal["weighted"] = "weighted"

    @architecture
    class Weighted(DualEncoder):
        kind = "weighted"
        config_type = WeightedConfig

        @classmethod
        def make_interaction(cls, config):
            return WeightedDot(config.dim)

    yield
    del INTERACTIONS["weighted_dot"], ARCHITECTURES["weighted"]


@pytest.fixture
def saved(tiny_bert, tmp_path):
    matcher = build(matcher_config("weighted", init_from=tiny_bert, dim=6, query_length=8, document_length=8))
    with torch.no_grad():
        matcher.interaction.weights.copy_(torch.arange(6.0))
    matcher.save_pretrained(tmp_path / "model")
    return matcher, tmp_path / "model"


def test_it_loads_as_what_it_was(saved):
    matcher, folder = saved
    again = load(folder)
    assert type(again) is type(matcher) and again.identity() == matcher.identity()
    vectors = again.encode_query([left for left, _ in PAIRS]), again.encode_document([right for _, right in PAIRS])
    assert again.score(PAIRS) == pytest.approx((vectors[0] * np.arange(6) * vectors[1]).sum(1), rel=1e-4)


def test_a_student_of_the_same_kind_keeps_the_learnt_modules(saved):
    matcher, folder = saved
    student = build(matcher_config("weighted", init_from=str(folder), dim=6, query_length=8, document_length=8))
    assert student.encode_query(["sort"]) == pytest.approx(matcher.encode_query(["sort"]), abs=1e-5)


def test_kinds_that_sentence_transformers_has_need_no_mark(tiny_bert, tmp_path):
    build(matcher_config(init_from=tiny_bert, document_length=8)).save_pretrained(tmp_path / "model")
    assert not (tmp_path / "model" / "limbeck.json").exists()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"kind": "unheard"}, "is a 'unheard', a kind that limbeck does not know"),
        ({"interaction": "unheard"}, "unknown interaction 'unheard'"),
        ({"format": 9}, "limbeck.json: is not of format 1; update limbeck"),
        ({"arguments": {"width": 6}}, "cannot be loaded as a model"),
        ({"arguments": {"dim": 5}}, "cannot be loaded as a model"),
    ],
)
def test_a_wrong_description_is_a_one_line_error(saved, changes, message):
    _, folder = saved
    facts = json.loads((folder / "limbeck.json").read_text())
    (folder / "limbeck.json").write_text(json.dumps(facts | changes))
    (folder / MANIFEST).unlink()
    with pytest.raises(LimbeckError, match=message) as error:
        load(folder)
    assert "\n" not in str(error.value)
