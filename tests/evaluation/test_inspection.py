"""A pair as one model reads it, or a student and its teacher."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from limbeck.errors import LimbeckError
from limbeck.evaluation.attention_maps import map_distances, token_maps
from limbeck.evaluation.inspection import inspect_pair
from limbeck.matchers import build, matcher_config

PAIR = ("copy a file", "open the new folder")
LENGTHS = {"query_length": 8, "document_length": 16}


def made(start: str, kind: str = "dual_encoder", **options: object):
    torch.manual_seed(0)
    return build(matcher_config(kind=kind, init_from=start, **LENGTHS, **options)).eval()


def test_a_pair_is_shown_as_model_and_teacher_read_it(tiny_bert):
    student, teacher = made(tiny_bert), made(tiny_bert, "cross_encoder")
    found = inspect_pair(student, *PAIR, teacher=teacher, layer=1)
    (own,), (other,) = token_maps(student, [PAIR], 1), token_maps(teacher, [PAIR], 1, (6, 14))
    np.testing.assert_array_equal(found.model.map.there, own.there)
    np.testing.assert_array_equal(found.teacher.map.back, other.back)
    assert (found.model.virtual, found.teacher.virtual) == (True, False)
    assert found.model.scores == pytest.approx(student.score([PAIR]).tolist())
    assert found.distance == pytest.approx(float(map_distances(student, teacher, [PAIR])[0, 1]))
    told = json.loads(json.dumps(found.as_json()))
    assert told["tokens"] == [["copy", "a", "file"], ["open", "the", "new", "folder"]]
    assert np.shape(told["views"][1]["second_to_first"]) == (4, 3)


def test_links_are_the_best_of_each_token_strongest_first(tiny_bert):
    view = inspect_pair(made(tiny_bert), *PAIR).model
    links = view.links(100)
    assert len(links) == 3 + 4
    assert [link.weight for link in links] == sorted((link.weight for link in links), reverse=True)
    for link in links:
        values = view.map.there if link.forward else view.map.back
        row, column = link.place
        assert link.weight == values[row].max() == values[row, column] == view.weight(link)
        words = (view.map.first, view.map.second) if link.forward else (view.map.second, view.map.first)
        assert (link.source, link.target) == (words[0][row], words[1][column])


def test_a_cross_encoder_is_shown_by_itself(tiny_bert):
    found = inspect_pair(made(tiny_bert, "cross_encoder"), *PAIR)
    assert found.teacher is None and found.distance is None and not found.model.virtual
    assert found.model.layer == 2 and 0 < found.model.map.share < 1


def test_a_shallow_student_is_compared_with_the_teachers_layer_at_the_same_depth(tiny_bert):
    found = inspect_pair(made(tiny_bert, layers=1), *PAIR, teacher=made(tiny_bert, "cross_encoder"))
    assert (found.model.layer, found.teacher.layer) == (0, 2)


def test_mistakes_are_one_line(tiny_bert):
    student, teacher = made(tiny_bert), made(tiny_bert, "cross_encoder")
    for texts in (("", "a"), ("a", " \n")):
        with pytest.raises(LimbeckError, match=r"text [12] is empty; give two texts"):
            inspect_pair(student, *texts)
    with pytest.raises(LimbeckError, match="layer 9: dual_encoder has layers 0 to 2"):
        inspect_pair(student, *PAIR, layer=9)
    with pytest.raises(LimbeckError, match="is a dual_encoder, which computes no attention between texts"):
        inspect_pair(student, *PAIR, teacher=student)
    with pytest.raises(LimbeckError, match="is a cross_encoder itself; give --teacher only with"):
        inspect_pair(teacher, *PAIR, teacher=teacher)


def test_a_teacher_with_less_room_than_the_student_reads_texts_that_fit(tiny_bert):
    longer = {"query_length": 60, "document_length": 60}
    student = build(matcher_config(kind="dual_encoder", init_from=tiny_bert, **longer)).eval()
    found = inspect_pair(student, *PAIR, teacher=made(tiny_bert, "cross_encoder"))
    assert found.teacher.map.second == found.model.map.second == ("open", "the", "new", "folder")
    with pytest.raises(LimbeckError, match="is more than the teacher's 24"):
        inspect_pair(student, "copy", " ".join(["file"] * 30), teacher=made(tiny_bert, "cross_encoder"))
