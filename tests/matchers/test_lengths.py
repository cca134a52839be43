"""A matcher that is made to read less scores as one that was built to read so little."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from limbeck.matchers import build, matcher_config
from limbeck.matchers.lengths import shorten

PAIRS = [
    ("copy a file and open the folder and read a line", "sort the list of numbers in place and return a new list"),
    ("sort", "read a page"),
]


def made(start: str, query: int, document: int, **how):
    torch.manual_seed(0)
    spec = matcher_config(start=start, query_length=query, document_length=document, **how)
    return build(spec).eval()


@pytest.mark.parametrize(
    "how",
    [
        {"kind": "dual_encoder"},
        {"kind": "cross_encoder"},
        {"kind": "cross_encoder", "pooling": "segments"},
        {"kind": "cross_encoder", "pooling": "special"},
        {"kind": "cross_encoder", "pooling": "weighted", "across": -4.0},
        {"kind": "colbert", "dim": 8},
        {"kind": "dipair", "tokens": [2, 2], "take": "last", "dim": 8},
        {"kind": "poly_encoder", "tokens": [2, 1]},
        {"kind": "siamese"},
        {"kind": "virt"},
        {"kind": "deformer"},
    ],
    ids=lambda how: f"{how['kind']} {how.get('pooling', '')}".strip(),
)
def test_it_scores_as_one_that_was_built_so(tiny_bert, how):
    whole, small = made(tiny_bert, 16, 20, **how), made(tiny_bert, 4, 6, **how)
    before = whole.score(PAIRS)
    shorten(whole, 40, 40)
    assert np.array_equal(whole.score(PAIRS), before)  # nothing reads more than it did
    shorten(whole, 4, 6)
    assert np.allclose(whole.score(PAIRS), small.score(PAIRS), atol=1e-6)
    assert not np.allclose(whole.score(PAIRS), before, atol=1e-4)
    assert whole.identity() == small.identity()  # what it encodes now is stored apart
