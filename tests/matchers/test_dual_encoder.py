"""Dual encoders: what both towers read."""

from __future__ import annotations

import numpy as np

from limbeck.matchers import build, matcher_config


def test_a_limit_of_tokens_holds_for_a_model_with_lengths_of_its_own(tiny_bert: str) -> None:
    text, start = "copy move open close read write file folder", "copy move"
    matcher = build(matcher_config(init_from=tiny_bert, query_length=16, document_length=16))
    matcher.limit_tokens(4)  # two words between [CLS] and [SEP]
    for side in (0, 1):
        whole, cut = matcher.encode([text], side), matcher.encode([start], side)
        assert np.allclose(whole, cut, atol=1e-6)
