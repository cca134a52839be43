from __future__ import annotations

import pytest

from limbeck.runs.compress.candidates import Start, kept_layers, of_dual_encoder, of_scores

BASE = {"data": {"source": "pydocs", "spans": 1}, "evaluation": {"analyses": []}, "seed": 0}
DUAL = BASE | {"teacher": {"model": "minilm"}}
CROSS = BASE | {"teacher": {"model": "cross", "standardise": "global"}}


@pytest.mark.parametrize(
    ("count", "there", "layers"),
    [(1, 6, "auto:1"), (2, 6, [0, 5]), (3, 6, [0, 3, 5]), (3, 12, [0, 6, 11]), (2, 3, [0, 2])],
)
def test_a_student_keeps_the_first_and_the_last_layer_and_some_between(count, there, layers):
    assert kept_layers(count, there) == layers


def names(found) -> list[str]:
    return [candidate.name for candidate in found]


def test_cheap_students_come_first_and_a_shallow_teacher_has_fewer():
    whole = names(of_dual_encoder(DUAL, (5000, 3000), Start("minilm", 6, 128), False))
    assert whole == ["static", "2 layers", "3 layers", "1 layer", "2 layers, both sides", "3 layers, both sides"]
    assert names(of_dual_encoder(DUAL, (5000, 3000), Start("minilm", 2, 128), False)) == ["static", "1 layer"]


def test_students_learn_from_labels_if_there_are_enough():
    start = Start("minilm", 6, 128)
    assert not any("labels" in name for name in names(of_dual_encoder(DUAL, (5000, 3000), start, True, labelled=199)))
    found = {each.name: each for each in of_dual_encoder(DUAL, (5000, 3000), start, True, labelled=200)}
    assert list(found)[:6] == ["static", "2 layers", "3 layers", "1 layer", "static, labels", "3 layers, labels"]
    (stage,) = found["static, labels"].recipe.stages
    assert stage.steps == 8 and stage.only_labels  # five epochs of 200 queries, 128 a step


def test_a_student_of_labels_has_the_matching_steps_of_the_student_that_it_is_compared_with():
    start = Start("minilm", 6, 128)
    found = {each.name: each for each in of_dual_encoder(DUAL, (5000, 3000), start, True, labelled=200)}
    others = {name: found[each.without_labels] for name, each in found.items() if each.without_labels}
    assert set(others) == {"static, labels", "3 layers, labels"}
    for name, other in others.items():
        *matching, labels = found[name].recipe_at(0).stages
        assert matching == other.recipe_at(0).stages and labels.only_labels
        assert found[name].recipe.student == other.recipe.student and len(found[name].rungs) == 1


def test_students_that_keep_a_users_vectors_have_only_a_query_encoder():
    found = list(of_dual_encoder(DUAL, (5000, 3000), Start("minilm", 6, 128), True))
    assert len(found) == 4 and all(candidate.keeps_documents for candidate in found)


def test_the_rungs_of_a_candidate_are_prefixes_of_its_stages():
    two = list(of_dual_encoder(DUAL, (5000, 3000), Start("minilm", 6, 128), False))[1]
    steps = -(-5000 // 64)
    assert [stage.steps for stage in two.recipe.stages] == [steps, 2 * steps, 4 * steps]
    assert [len(two.recipe_at(rung).stages) for rung in range(3)] == [1, 2, 3]
    assert [two.new_steps(rung) for rung in range(3)] == [steps, 2 * steps, 4 * steps]


def test_students_of_scores_learn_orders_from_a_start():
    found = list(of_scores(CROSS, (5000, 3000), 1000, Start("minilm", 6, 128)))
    assert names(found) == ["static", "2 layers", "3 layers", "ColBERT, 2 layers"]
    assert all(candidate.recipe.student.init_from == "minilm" for candidate in found)
    assert {stage.objectives[0].partition("(")[0] for stage in found[1].recipe.stages} == {
        "match_embeddings", "softmax_ce"
    }  # fmt: skip


def test_a_start_reads_no_more_than_it_has_positions(tiny_bert):
    assert Start.of(tiny_bert) == Start(tiny_bert, 3, 64)
