"""The cost of a query: only what encodes queries counts, however large the document side is."""

from __future__ import annotations

from limbeck.evaluation.latency import parameter_count
from limbeck.evaluation.query_cost import query_cost
from limbeck.matchers import build, matcher_config

TEXTS = ["copy a file", "sort the list"]
SHORT = {"query_length": 8, "document_length": 16}


def made(tiny_bert: str, **options: object):
    return build(matcher_config(**{"init_from": tiny_bert, **SHORT, **options}))


def test_a_teachers_document_tower_is_not_part_of_the_students_query_encoder(tiny_bert, tmp_path):
    teacher = made(tiny_bert, similarity="cosine")
    teacher.save_pretrained(tmp_path / "teacher")
    student = made(tiny_bert, layers=1, document=str(tmp_path / "teacher"))
    alone = made(tiny_bert, layers=1)
    found = query_cost(student, TEXTS)
    assert found is not None and found.ms > 0
    assert found.parameters == parameter_count(alone) < parameter_count(teacher) < parameter_count(student)


def test_a_static_query_encoder_has_its_token_table_and_nothing_else(tiny_bert, tmp_path):
    made(tiny_bert, similarity="cosine").save_pretrained(tmp_path / "teacher")
    student = made(tiny_bert, encoder="static", document=str(tmp_path / "teacher"))
    found = query_cost(student, TEXTS)
    assert found is not None and found.parameters == student.tower.token_embeddings("query").numel()


def test_other_kinds_count_what_they_run_for_a_query(tiny_bert):
    colbert = made(tiny_bert, kind="colbert", dim=8)
    found = query_cost(colbert, TEXTS)
    assert found is not None and found.parameters == parameter_count(colbert)
    dipair = made(tiny_bert, kind="dipair", dim=8, tokens=[2, 2], untied=True)
    found = query_cost(dipair, TEXTS)
    assert found is not None and found.parameters == parameter_count(dipair.encoder(0)) < parameter_count(dipair) / 2


def test_a_cross_encoder_encodes_no_query_by_itself(tiny_bert):
    assert query_cost(made(tiny_bert, kind="cross_encoder"), TEXTS) is None
    assert query_cost(made(tiny_bert), []) is None
