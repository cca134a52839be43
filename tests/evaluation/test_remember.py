from __future__ import annotations

import numpy as np

from limbeck.evaluation.remember import Remembering


class Counting:
    similarity = "dot"

    def __init__(self) -> None:
        self.encoded: list[str] = []

    def encode_query(self, texts):
        return np.array([[len(text), 0.0] for text in texts], dtype=np.float32)

    def encode_document(self, texts):
        self.encoded += texts
        return np.array([[len(text), 1.0] for text in texts], dtype=np.float32).reshape(len(texts), 2)

    def score(self, pairs):
        raise AssertionError("no pair is scored by itself here")


def test_a_text_is_encoded_once_and_the_vectors_are_the_encoders():
    encoder = Counting()
    remembering = Remembering(encoder)
    first = remembering.encode_document(["aa", "b", "aa"])
    assert first.tolist() == [[2, 1], [1, 1], [2, 1]]
    assert remembering.encode_document(["ccc", "b"]).tolist() == [[3, 1], [1, 1]]
    assert encoder.encoded == ["aa", "b", "ccc"]
    assert remembering.encode_document([]).shape == (0, 2)


def test_beyond_its_bound_it_forgets_and_goes_on():
    encoder = Counting()
    remembering = Remembering(encoder, most=2)
    for _ in range(2):
        assert remembering.encode_document(["a", "bb", "ccc"]).tolist() == [[1, 1], [2, 1], [3, 1]]
    assert len(encoder.encoded) == 6
