from __future__ import annotations

import numpy as np

from limbeck.evaluation.encoding_cache import Remembering
from limbeck.matchers.encoding import Encoding
from limbeck.matchers.interactions import Dot


class Counting:
    interaction = Dot()

    def __init__(self) -> None:
        self.encoded: list[str] = []

    def encoding(self, position):
        return Encoding(2)

    def encode(self, texts, position, batch_size=32):
        self.encoded += texts
        return np.array([[len(text), position] for text in texts], dtype=np.float32).reshape(len(texts), 2)

    def score(self, pairs):
        raise AssertionError("no pair is scored by itself here")


def test_a_text_is_encoded_once_and_the_vectors_are_the_encoders():
    encoder = Counting()
    remembering = Remembering(encoder)
    first = remembering.encode(["aa", "b", "aa"], 1)
    assert first.tolist() == [[2, 1], [1, 1], [2, 1]]
    assert remembering.encode(["ccc", "b"], 1).tolist() == [[3, 1], [1, 1]]
    assert encoder.encoded == ["aa", "b", "ccc"]
    assert remembering.encode([], 1).shape == (0, 2)


def test_above_its_limit_it_forgets_and_continues():
    encoder = Counting()
    remembering = Remembering(encoder, most=2)
    for _ in range(2):
        assert remembering.encode(["a", "bb", "ccc"], 1).tolist() == [[1, 1], [2, 1], [3, 1]]
    assert len(encoder.encoded) == 6
