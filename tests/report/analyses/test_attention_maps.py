"""The analysis of attention maps: what it draws and measures is what the models show, and the section says it."""

import json

import numpy as np
import pytest
import torch

from limbeck.errors import LimbeckError
from limbeck.evaluation.attention_maps import map_distances, token_maps
from limbeck.matchers import build, matcher_config
from limbeck.objectives import virt
from limbeck.report.analyses import attention_maps, attention_maps_section
from limbeck.report.analyses.attention_maps import PICTURES
from limbeck.report.analyses.measured_run import AttentionModels
from limbeck.report.heatmaps import MOST
from limbeck.runs.add_analyses import add_analyses
from limbeck.runs.run import distill
from tests.report.analyses.helpers import comes_back, shown

PAIRS = [("copy a file", "open the new folder"), ("sort", "sort the list"), ("a <b>", "a page"), ("read", "write")]
LENGTHS = {"query_length": 8, "document_length": 16}


def made(start: str, kind: str = "dual_encoder", seed: int = 0, **options: object):
    torch.manual_seed(seed)
    return build(matcher_config(kind=kind, init_from=start, **LENGTHS, **options)).eval()


@pytest.fixture
def models(tiny_bert) -> AttentionModels:
    students = {"all": made(tiny_bert), "two layers": made(tiny_bert, layers=2)}
    loads = {name: (lambda model=model: model) for name, model in students.items()}
    teacher = made(tiny_bert, "cross_encoder", seed=1)
    return AttentionModels(PAIRS, lambda: teacher, loads, {"two layers": virt(map="first")})


def test_maps_and_distances_are_those_of_the_models(models) -> None:
    result = attention_maps(models)
    assert comes_back(result) and not result.left_out
    teacher, students = models.teacher(), {name: load() for name, load in models.students.items()}
    assert [one.name for one in result.students] == list(students)
    whole, two = result.students
    np.testing.assert_allclose(whole.distances, map_distances(students["all"], teacher, PAIRS).mean(axis=0))
    assert two.layers == ((0, 0), (1, 1)) and whole.layers == ((0, 0), (1, 1), (2, 2)) and whole.pairs == len(PAIRS)
    assert whole.mean == pytest.approx(np.mean(whole.distances))
    assert len(result.pairs) == PICTURES and result.layer == 2
    first = result.pairs[0]
    assert (first.first, first.second) == (("copy", "a", "file"), ("open", "the", "new", "folder"))
    assert [one.model for one in first.maps] == ["teacher", "all", "two layers"]
    expected = [
        token_maps(teacher, PAIRS[:1], 2, (6, 14)),
        token_maps(students["all"], PAIRS[:1], 2),
        token_maps(students["two layers"], PAIRS[:1], 1),
    ]
    for drawn, (one,) in zip(first.maps, expected, strict=True):
        np.testing.assert_allclose(drawn.there, one.there, atol=1e-4)
        np.testing.assert_allclose(drawn.back, one.back, atol=1e-4)


def test_another_layer_can_be_drawn(models) -> None:
    from dataclasses import replace

    result = attention_maps(replace(models, layer=0))
    assert result.layer == 0
    (one,) = token_maps(models.teacher(), PAIRS[:1], 0, (6, 14))
    np.testing.assert_allclose(result.pairs[0].maps[0].there, one.there, atol=1e-4)
    deep = attention_maps(replace(models, layer=2))
    assert [one.name for one in deep.students] == ["all"]
    assert deep.left_out == ("two layers: evaluation.attention_layer: it has no layer 2, only 0 to 1",)


def test_the_section_says_who_is_closest_and_shows_every_map(models) -> None:
    result = attention_maps(models)
    text = shown(attention_maps_section(result))
    closest = min(result.students, key=lambda one: one.mean)
    assert f"{closest.name} is closest to the teacher ({closest.mean:.4f}" in text
    assert text.count("first text to second") == text.count("second text to first") == PICTURES
    assert "means over 4 test pairs" in text and "Layer 2" in text
    alone = result.model_copy(update={"students": result.students[:1]})
    assert "all is " in shown(attention_maps_section(alone))


def test_a_student_without_attention_is_left_out_and_named(models, tiny_bert) -> None:
    from dataclasses import replace

    cross = made(tiny_bert, "cross_encoder")
    result = attention_maps(replace(models, students={**models.students, "small cross-encoder": lambda: cross}))
    assert [one.name for one in result.students] == ["all", "two layers"]
    assert "small cross-encoder: " in result.left_out[0]
    assert "Left out: small cross-encoder" in shown(attention_maps_section(result))
    with pytest.raises(LimbeckError, match="only: "):
        attention_maps(replace(models, students={"only": lambda: cross}))


def test_long_texts_are_cut_and_short_pairs_come_first(tiny_bert) -> None:
    lengths = {"query_length": 60, "document_length": 60, "init_from": tiny_bert}
    student = build(matcher_config(kind="dual_encoder", **lengths)).eval()
    teacher = build(matcher_config(kind="cross_encoder", query_length=31, document_length=30, init_from=tiny_bert))
    long = " ".join(["file"] * 50)
    with pytest.raises(LimbeckError, match="is more than the teacher's"):
        attention_maps(AttentionModels([("copy", long)], lambda: teacher, {"student": lambda: student}))
    short = build(matcher_config(kind="dual_encoder", query_length=8, document_length=50, init_from=tiny_bert)).eval()
    pairs = [("copy", long), ("sort", "sort the list")]
    result = attention_maps(AttentionModels(pairs, lambda: teacher, {"student": lambda: short}))
    assert [len(pair.second) for pair in result.pairs] == [3, MOST]
    assert np.shape(result.pairs[1].maps[1].back) == (MOST, 1)


def test_a_ranking_run_draws_its_maps_and_another_layer_later(recipe, tmp_path) -> None:
    recipe["student"].pop("layers")
    recipe["evaluation"]["analyses"] = ["attention_maps"]
    distill(recipe, tmp_path / "run")
    place = tmp_path / "run" / "analyses" / "attention_maps.json"
    found = json.loads(place.read_text())
    assert found["layer"] == 2 and found["students"][0]["name"] == "student" and found["students"][0]["pairs"] == 6
    add_analyses(tmp_path / "run", ["attention_maps"], ["evaluation.attention_layer=0"])
    assert json.loads(place.read_text())["layer"] == 0
    with pytest.raises(LimbeckError, match="give evaluation.attention_layer with --add attention_maps"):
        add_analyses(tmp_path / "run", ["wins"], ["evaluation.attention_layer=0"])
