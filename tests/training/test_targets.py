"""A temperature that does not fit the teacher's scores is named, with one that does."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch

from limbeck.matchers import build, matcher_config
from limbeck.recipe.files import load_recipe
from limbeck.recipe.stage import Stage
from limbeck.runs.ranking_task import RankingTask
from limbeck.runs.run import distill
from limbeck.runs.teacher_step import prepare_teacher
from limbeck.training.targets import COSINE_SCALE, poor_targets, scale_cosines, scores_are_cosines
from tests.training.toy import ToyLists


class Scored(ToyLists):
    """Lists whose teacher's scores are normal with a mean and a deviation."""

    def __init__(self, mean: float, deviation: float) -> None:
        super().__init__()
        self.mean, self.deviation = mean, deviation

    def teacher(self, index, rows):
        generator = np.random.default_rng(index)
        return (self.mean + self.deviation * generator.normal(size=len(rows))).astype(np.float32)


def stage(*objectives: str) -> Stage:
    return Stage(objectives=list(objectives), steps=1)


@pytest.mark.parametrize("objective", ["softmax_ce(tau=4)", "kl(tau_teacher=4)", "0.5 * softmax_ce(tau=2)"])
def test_cosines_under_a_temperature_for_logits_are_nearly_uniform_and_a_better_one_is_named(objective):
    cosines = Scored(0.4, 0.12)
    (line,) = poor_targets(stage(objective), cosines)
    assert line.startswith(f"{objective}: the teacher's targets are nearly uniform (entropy ")
    better = re.search("try (.*)$", line).group(1)
    assert "tau_teacher=0.1" in better and not list(poor_targets(stage(better), cosines))


def test_logits_far_apart_are_nearly_one_hot():
    (line,) = poor_targets(stage("one_hot", "softmax_ce(tau=0.01)"), Scored(0, 4))
    assert "nearly one-hot" in line and "tau_teacher=" in line


@pytest.mark.parametrize("objective", ["softmax_ce(tau=4)", "softmax_ce", "margin_mse", "one_hot", "soft_binary_ce"])
def test_targets_of_a_cross_encoders_logits_pass(objective):
    assert not list(poor_targets(stage(objective), Scored(0, 3)))


def test_pairs_are_judged_one_by_one():
    (line,) = poor_targets(stage("soft_binary_ce(tau=9)"), Scored(0, 0.5))
    assert "nearly uniform" in line and "soft_binary_ce(tau=0." in line


def test_scaled_cosines_pass_where_plain_ones_do_not():
    cosines = Scored(0.4, 0.12)
    assert list(poor_targets(stage("softmax_ce(tau=4)"), cosines))
    assert not list(poor_targets(stage("softmax_ce(tau=4)"), cosines, scale_cosines))
    scores = torch.tensor([[0.5, 0.25]])
    assert scale_cosines(scores, scores > 0).tolist() == [[0.5 * COSINE_SCALE, 0.25 * COSINE_SCALE]]


def test_a_dual_encoder_with_cosines_or_unit_vectors_is_known_by_its_scores(tiny_bert):
    def made(**options):
        return build(matcher_config(start=tiny_bert, layers=1, query_length=8, document_length=8, **options))

    assert scores_are_cosines(made(similarity="cosine"))
    assert not scores_are_cosines(made()) and not scores_are_cosines(made(scale=20))
    assert not scores_are_cosines(made(kind="cross_encoder")) and not scores_are_cosines(None)


def test_a_live_teacher_is_asked_for_a_few_lists(tiny_bert):
    teacher = build(matcher_config(start=tiny_bert, layers=1, similarity="cosine", query_length=8, document_length=8))
    (line,) = poor_targets(stage("softmax_ce(tau=9)"), ToyLists(), live=teacher)
    assert "nearly uniform" in line


def ready(recipe, folder):
    session = RankingTask(load_recipe(recipe), folder / "run")
    prepare_teacher(session)
    return session


def test_a_cosine_teachers_scores_are_scaled_unless_the_recipe_says_no(recipe, tmp_path, tiny_bert):
    spec = matcher_config(start=tiny_bert, layers=1, similarity="cosine", query_length=8, document_length=8)
    build(spec).save_pretrained(tmp_path / "teacher")
    recipe["teacher"] = {"model": str(tmp_path / "teacher")}
    assert ready(recipe, tmp_path).standardise is scale_cosines
    recipe["teacher"]["standardise"] = "none"
    assert ready(recipe, tmp_path).standardise is None


@pytest.mark.parametrize(("objective", "said"), [("softmax_ce", 1), ("match_embeddings", 0)])
def test_scaled_cosines_are_only_news_if_an_objective_reads_scores(
    objective, said, recipe, tmp_path, tiny_bert, monkeypatch
):
    lines = []
    monkeypatch.setattr("limbeck.runs.task.say", lines.append)
    spec = matcher_config(start=tiny_bert, layers=1, similarity="cosine", query_length=8, document_length=8)
    build(spec).save_pretrained(tmp_path / "teacher")
    recipe["teacher"] = {"model": str(tmp_path / "teacher")}
    recipe["stages"][0] |= {"objectives": [objective]}
    distill(recipe, tmp_path / "run")
    assert sum("the teacher's scores are cosines" in line for line in lines) == said
