"""A ColBERT teacher inside every step, and a student that starts from it (TCT-ColBERT Sec. 3)."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from limbeck.errors import LimbeckError
from limbeck.matchers import load
from limbeck.objectives import parse
from limbeck.recipe.files import load_recipe
from limbeck.runs import distill
from limbeck.signals import Signals, Targets

EQ6 = ["0.1 * one_hot", "0.9 * kl(tau_teacher=0.25)"]


@pytest.fixture
def coupled(recipe) -> dict:
    """A ColBERT is trained, then runs in every step of a student that starts from its first layer."""
    recipe["teacher"]["train"]["kind"] = "colbert"
    recipe["teacher"]["live"] = True
    recipe["student"] = {**recipe["student"], "init_from": "teacher"}
    recipe["stages"][0] |= {"objectives": EQ6, "lists": {"size": 2, "pool": 6, "in_batch": True}}
    return recipe


def test_the_student_starts_from_the_teachers_weights_and_markers(coupled, tmp_path):
    coupled["stages"][0] |= {"lr": 1e-12, "weight_decay": 0.0}
    distill(coupled, tmp_path / "run")
    teacher, student = load(tmp_path / "run" / "teacher" / "model"), load(tmp_path / "run")
    theirs, ours = teacher.tower.transformer("query").model, student.tower.transformer("query").model
    there = dict(theirs.named_parameters())
    for name, parameter in ours.named_parameters():
        assert torch.allclose(parameter, there[name], atol=1e-6), name
    assert len(ours.encoder.layer) == 1 and len(theirs.encoder.layer) == 3
    assert student.tower.prompt("query") == teacher.tower.prompt("query") != teacher.tower.prompt("document")


def test_a_coupled_run_ends_with_both_tasks_and_resumes_where_it_was(coupled, tmp_path):
    result = distill(coupled, tmp_path / "run", ["evaluation.task=both"])
    teacher, student = result.rows[0], result.rows[-1]
    assert "search ndcg@10" in teacher.measures and "search ndcg@10" in student.measures
    assert distill(coupled, tmp_path / "run", ["evaluation.task=both"]).rows == result.rows
    entries = [json.loads(line) for line in (tmp_path / "run" / "log.jsonl").read_text().splitlines()]
    named = next(entry["objectives"] for entry in entries if entry["model"] == "student" and "objectives" in entry)
    assert set(named) == {"one_hot", "kl(tau_teacher=0.25)"}


def test_a_start_that_is_the_teacher_is_one_row(coupled, tmp_path):
    coupled["evaluation"] = {**coupled.get("evaluation", {}), "baselines": ["start"]}
    trained = distill(coupled, tmp_path / "run")
    assert [row.kind for row in trained.rows] == ["teacher", "baseline", "student"]  # where the teacher started
    coupled["teacher"] = {"model": str(tmp_path / "run" / "teacher" / "model"), "live": True}
    given = distill(coupled, tmp_path / "again")
    assert [row.kind for row in given.rows] == ["teacher", "student"]


def test_eq_6_is_the_weighted_sum_of_two_objectives():
    """By hand in numpy: -gamma log P(d+) + (1 - gamma) KL(P_hat || P), tau on the teacher's side only."""
    generator = np.random.default_rng(0)
    student, teacher = generator.normal(size=(3, 6)), generator.normal(size=(3, 6))
    positive, gamma, tau = np.array([0, 2, 4]), 0.1, 0.25
    labels = np.eye(6)[positive]

    def softmax(scores):
        weights = np.exp(scores - scores.max(axis=1, keepdims=True))
        return weights / weights.sum(axis=1, keepdims=True)

    p, p_hat = softmax(student), softmax(teacher / tau)
    wanted = -gamma * np.log(p[np.arange(3), positive]) + (1 - gamma) * (p_hat * np.log(p_hat / p)).sum(axis=1)
    targets = Targets(mask=torch.ones(3, 6, dtype=torch.bool), labels=torch.tensor(labels))
    signals = Signals(scores=torch.tensor(student)), Signals(scores=torch.tensor(teacher))
    found = sum(weight * objective(*signals, targets) for weight, objective in map(parse, EQ6))
    assert np.allclose(found.numpy(), wanted, atol=1e-12)


def test_the_triplet_variant_matches_a_query_s_own_two_documents():
    """Table 3: the divergence over two of six, by hand; the other four get no gradient."""
    generator = np.random.default_rng(1)
    student, teacher = generator.normal(size=(3, 6)), generator.normal(size=(3, 6))
    own = np.array([[0, 1], [2, 3], [4, 0]])
    logits = torch.tensor(student, requires_grad=True)
    targets = Targets(torch.ones(3, 6, dtype=torch.bool), torch.full((3, 6), torch.nan), own=mask_of(own, 6))
    found = parse("kl(tau_teacher=2, over=own)")[1](Signals(logits), Signals(torch.tensor(teacher)), targets)
    found.sum().backward()
    for row, (left, right) in enumerate(own):
        p = 1 / (1 + np.exp((teacher[row, right] - teacher[row, left]) / 2))
        q = 1 / (1 + np.exp(student[row, right] - student[row, left]))
        wanted = p * np.log(p / q) + (1 - p) * np.log((1 - p) / (1 - q))
        assert found[row].item() == pytest.approx(wanted, abs=1e-12)
        assert logits.grad[row, left] == pytest.approx(q - p)
    assert not logits.grad[~targets.own].any()
    everything = parse("kl(tau_teacher=2)")[1](Signals(logits), Signals(torch.tensor(teacher)), targets)
    assert not torch.allclose(everything, found)


def mask_of(own, width):
    return torch.zeros(len(own), width, dtype=torch.bool).scatter_(1, torch.tensor(own), True)


def test_a_cached_teacher_distils_only_what_it_was_asked_about(coupled, tmp_path):
    """Stored scores know a query's own candidates; other queries' documents have none."""
    coupled["teacher"]["live"] = False
    distill(coupled, tmp_path / "run")
    assert (tmp_path / "run" / "teacher" / "scores").exists()


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"teacher": {"scores": "x.trec"}}, "student.init_from: teacher needs a teacher with a model"),
        ({"teacher": {"model": "a/b", "revision": "main"}}, "student.init_from: teacher takes no revision"),
        ({"teacher": {"train": {"init_from": "teacher"}}}, "a teacher cannot start from itself"),
    ],
)
def test_a_start_that_cannot_be_is_refused(coupled, change, line):
    with pytest.raises(LimbeckError, match=line):
        load_recipe({**coupled, **change})


@pytest.mark.parametrize("live", [False, True])
def test_mined_negatives_pass_the_teacher_first(coupled, tmp_path, live):
    """With a margin that no candidate passes, only positives are left, and nothing can be learnt from lists of one."""
    coupled["teacher"]["live"] = live
    coupled["stages"][0]["lists"] = {"size": 3, "pool": 6, "below_positive": 1000.0}
    distill(coupled, tmp_path / "run")
    entries = [json.loads(line) for line in (tmp_path / "run" / "log.jsonl").read_text().splitlines()]
    losses = [entry["loss"] for entry in entries if entry["model"] == "student" and "loss" in entry]
    assert losses and all(loss == 0 for loss in losses)


def test_a_filter_by_the_teacher_needs_one(coupled):
    recipe = {**coupled, "teacher": None, "student": {"init_from": "minilm"}}
    recipe["stages"] = [{"objectives": ["one_hot"], "steps": 1, "lists": {"below_positive": 0.0}}]
    with pytest.raises(LimbeckError, match="false_negative_margin needs a teacher"):
        load_recipe(recipe)
