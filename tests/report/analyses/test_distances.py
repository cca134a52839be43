"""Distances between queries: worked out by hand, and through a run."""

from __future__ import annotations

import numpy as np
import pytest

from limbeck.errors import LimbeckError
from limbeck.evaluation.query_distances import query_distances
from limbeck.matchers.encoding import Encoding
from limbeck.report.analyses import Distances, distances, distances_section


class Vectors:
    """A model whose vector of a text is looked up."""

    def __init__(self, vectors: dict[str, list[float]], tokens: int | None = None) -> None:
        self.vectors, self.tokens = vectors, tokens

    def encoding(self, position: int) -> Encoding:
        return Encoding(2, self.tokens)

    def encode(self, texts, position):
        return np.array([self.vectors[text] for text in texts])


def test_distances_are_those_of_unit_vectors_pair_by_pair():
    model = Vectors({"a": [3.0, 0.0], "b": [0.0, 5.0], "c": [-1.0, 0.0]})
    assert query_distances(model, ["a", "b", "c"]) == pytest.approx([2**0.5, 2.0, 2**0.5], abs=1e-6)
    assert query_distances(Vectors({"a": [1, 0]}), ["a"]) is None
    assert query_distances(Vectors({}, tokens=3), ["a", "b"]) is None


def test_differences_to_the_reference_are_absolute_and_the_nearest_model_is_named():
    known = {"teacher": [1.0, 2.0, 1.5], "near": [1.1, 1.9, 1.5], "far": [0.5, 1.0, 1.9]}
    found = distances("teacher", known)
    means = {model.name: model.differences.mean for model in found.models}
    assert means == pytest.approx({"near": 0.2 / 3, "far": 1.9 / 3})
    assert found.models[0].correlation == pytest.approx(np.corrcoef(known["near"], known["teacher"])[0, 1])
    assert Distances.model_validate_json(found.model_dump_json()) == found
    html = "".join(block.html() for block in distances_section(found).blocks)
    assert "near comes nearest to the space of teacher" in html and "0.067 on average" in html


def test_nothing_to_compare_is_said():
    with pytest.raises(LimbeckError, match="no other model keeps one vector per text"):
        distances("teacher", {"teacher": [1.0]})
