"""The teacher step of a run: load the recipe's teacher, or train it first. This is the only step that trains it."""

from __future__ import annotations

from pathlib import Path

import torch

from limbeck.matchers import Matcher, build
from limbeck.matchers import load as load_matcher
from limbeck.recipe.recipe import Recipe
from limbeck.runs.task import Task
from limbeck.training.processes import main_first
from limbeck.training.stages import Fit, fit


def prepare_teacher(task: Task) -> Matcher | None:
    """The teacher's model, loaded or trained now if this task does not have it yet.

    None if there is no teacher, or only its scores. Code that reads `task.teacher` must run after this step.
    """
    if not task.teacher_is_ready:
        task.teacher_failed = True
        task.teacher = _load_or_train(task)
        task.teacher_failed = False
    return task.teacher


def has_to_be_trained(task: Task) -> bool:
    """Whether the teacher step will train; cheap checks are done before it."""
    spec = task.recipe.teacher
    return spec is not None and spec.train is not None and not teacher_place(task.folder).exists()


def teacher_place(folder: Path) -> Path:
    """The folder of the teacher that a run trained."""
    return folder / "teacher" / "model"


def _load_or_train(task: Task) -> Matcher | None:
    spec = task.recipe.teacher
    if spec is None or (spec.model is None and spec.train is None):
        return None
    if spec.model is not None:
        found = load_matcher(spec.model, spec.revision, bf16=spec.bf16)
        if spec.length is not None:
            found.limit_tokens(spec.length)
        return found
    place = teacher_place(task.folder)
    if not place.exists():
        _train(task, task.recipe, place)
    return load_matcher(place, bf16=spec.bf16)


def _train(task: Task, recipe: Recipe, place: Path) -> None:
    spec, seed = recipe.teacher, recipe.teacher_seed
    assert spec is not None and spec.train is not None
    torch.manual_seed(seed)
    matcher = build(spec.train)
    how = Fit("teacher", task.work, task.log, seed, task.judged_dev)
    fit(matcher, spec.stages, lambda stage: task.lists(stage, seed), how)
    with main_first() as main:
        if main:
            matcher.save_pretrained(place)
