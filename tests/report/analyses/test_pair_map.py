"""The map of a cross-encoder's vectors: shares of variance by hand, the plane against an eigendecomposition."""

import json

import numpy as np
import pytest
import torch

from limbeck.errors import LimbeckError
from limbeck.evaluation.pair_vectors import PairVectors, pair_vectors
from limbeck.matchers import build, matcher_config
from limbeck.report.analyses import pair_map, pair_map_section
from limbeck.report.analyses.pair_map import between, principal_plane
from limbeck.report.analyses.stored import stored_sections
from limbeck.runs.run import distill
from tests.report.analyses.helpers import comes_back, ranking_data, shown

TEXTS = {"q1": "copy a file", "q2": "sort <b>"}
RELEVANT = {"q1": [True, False], "q2": [True, False, False]}


def random_vectors(seed: int = 0, dim: int = 6) -> PairVectors:
    draw = np.random.default_rng(seed)
    return PairVectors("query_proxies", {"q1": draw.normal(size=(2, dim)), "q2": draw.normal(size=(3, dim))})


def test_the_plane_holds_the_two_largest_variances() -> None:
    rows = np.random.default_rng(1).normal(size=(30, 5)) * [1, 5, 2, 0.1, 3]
    centred = rows - rows.mean(axis=0)
    plane = principal_plane(centred)
    values, vectors = np.linalg.eigh(centred.T @ centred)
    np.testing.assert_allclose((plane**2).sum(axis=0), values[[-1, -2]], rtol=1e-9)
    for place in (0, 1):
        vector = vectors[:, -1 - place]
        vector = vector * np.sign(vector[np.abs(vector).argmax()])
        np.testing.assert_allclose(plane[:, place], centred @ vector, atol=1e-9)
    np.testing.assert_array_equal(plane, principal_plane(centred.copy()))


def test_turned_vectors_have_the_same_shares_and_one_dimension_is_a_line() -> None:
    vectors = random_vectors()
    turn, _ = np.linalg.qr(np.random.default_rng(3).normal(size=(6, 6)))
    turned = PairVectors("query_proxies", {query: rows @ turn + 7 for query, rows in vectors.lists.items()})
    one, two = (pair_map({"teacher": each}, RELEVANT, TEXTS).maps[0] for each in (vectors, turned))
    assert (two.by_query, two.by_relevance, two.plane) == pytest.approx((one.by_query, one.by_relevance, one.plane))
    flat = PairVectors("query_proxies", {query: rows[:, :1] for query, rows in vectors.lists.items()})
    line = pair_map({"teacher": flat}, RELEVANT, TEXTS).maps[0]
    assert line.plane == pytest.approx(1) and {point.y for point in line.points} == {0.0}


def test_shares_of_variance_by_hand() -> None:
    rows = np.array([[3.0, 1.0], [3.0, -1.0], [-3.0, 1.0], [-3.0, -1.0]])  # 36 of 40 along x, 4 along y
    assert between(rows, np.array(["a", "a", "b", "b"])) == pytest.approx(0.9)
    assert between(rows, np.array([True, False, True, False])) == pytest.approx(0.1)
    assert between(rows, np.array([0, 1, 1, 0])) == pytest.approx(0)
    assert between(rows, np.arange(4)) == pytest.approx(1)


@pytest.mark.parametrize(
    ("scale", "reading"),
    [(10.0, "They tell which query it is"), (2.0, "They depend on the document"), (0.01, "They tell the verdict")],
)
def test_the_section_says_what_the_vectors_tell(scale: float, reading: str) -> None:
    centres = {"q1": scale * np.array([1.0, 0, 0]), "q2": scale * np.array([0, 1.0, 0])}
    verdict = np.array([0, 0, 1.0])
    lists = {
        query: np.array([centre + (1 if mark else -1) * verdict for mark in RELEVANT[query]])
        for query, centre in centres.items()
    }
    result = pair_map({"a teacher": PairVectors("pair_embeddings", lists)}, RELEVANT, TEXTS)
    assert comes_back(result)
    text = shown(pair_map_section(result))
    assert reading in text and "a teacher, embeddings of the pair" in text and "sort <b>" in text
    assert "5 pairs of 2 test queries" in text
    assert [point.relevant for point in result.maps[0].points] == [True, False, True, False, False]


def test_several_models_are_mapped_one_after_the_other() -> None:
    result = pair_map({"one": random_vectors(), "two": random_vectors(5)}, RELEVANT, TEXTS)
    text = shown(pair_map_section(result))
    assert "one: proxies of the query" in text and "two: proxies of the query" in text


def test_vectors_that_cannot_be_mapped_are_refused() -> None:
    with pytest.raises(LimbeckError, match="there are no vectors to map"):
        pair_map({}, RELEVANT, TEXTS)
    alike = PairVectors("query_proxies", {"q1": np.ones((2, 3)), "q2": np.ones((3, 3))})
    with pytest.raises(LimbeckError, match="its vectors of pairs are all alike"):
        pair_map({"teacher": alike}, RELEVANT, TEXTS)


def test_vectors_are_those_of_each_pair(tiny_bert) -> None:
    corpus = {"d1": "copy a file to a path", "d2": "sort", "d3": "open the folder"}
    data = ranking_data({"q1": "copy a file", "q2": "sort the list"}, corpus)
    torch.manual_seed(0)
    lengths = {"start": tiny_bert, "query_length": 8, "document_length": 16}
    model = build(matcher_config(kind="cross_encoder", pooling="special", **lengths))
    found = pair_vectors(model, data, {"q1": ["d1", "d3"], "q2": ["d2"]})
    assert found.signal == "query_proxies" and found.lists["q2"].shape == (1, 32)
    features = model.eval().model.preprocess([("copy a file", "open the folder")])
    with torch.no_grad():
        state = model.model[0](dict(features))["token_embeddings"][0, 0].numpy()
    np.testing.assert_allclose(found.lists["q1"][1], state, atol=1e-5)
    plain = build(matcher_config(kind="cross_encoder", **lengths))
    assert pair_vectors(plain, data, {"q1": ["d1"]}).signal == "pair_embeddings"
    with pytest.raises(LimbeckError, match="a dual_encoder shows no vectors of pairs; a map needs a cross_encoder"):
        pair_vectors(build(matcher_config(**lengths)), data, {"q1": ["d1"]})


def test_a_run_maps_its_teacher(recipe, tmp_path) -> None:
    recipe["teacher"]["train"]["pooling"] = "weighted"
    recipe["evaluation"]["analyses"] = ["pair_map"]
    distill(recipe, tmp_path / "run")
    (one,) = json.loads((tmp_path / "run" / "analyses" / "pair_map.json").read_text())["maps"]
    assert one["name"] == "teacher" and len({point["query"] for point in one["points"]}) > 1
    (section,) = stored_sections(tmp_path / "run")
    assert "teacher, proxies of the query" in shown(section)
