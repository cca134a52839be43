"""The teacher step of a run: load the recipe's teacher, or train it first. Nothing else in a run trains one."""

from __future__ import annotations

from pathlib import Path

import torch

from limbeck.matchers import Matcher, build
from limbeck.matchers import load as load_matcher
from limbeck.recipe.recipe import Recipe
from limbeck.runs.base_session import BaseSession
from limbeck.training.processes import main_first
from limbeck.training.stages import Fit, fit


def prepare_teacher(session: BaseSession) -> Matcher | None:
    """The teacher's model, loaded or trained now if this session does not have it yet.

    None where there is no teacher, or only its scores are known. What reads `session.teacher` comes after this step.
    """
    if not session.teacher_is_ready:
        session.teacher_failed = True
        session.teacher = _load_or_train(session)
        session.teacher_failed = False
    return session.teacher


def has_to_be_trained(session: BaseSession) -> bool:
    """Whether the teacher step will train: what is cheap to check is checked before it."""
    spec = session.recipe.teacher
    return spec is not None and spec.train is not None and not teacher_place(session.folder).exists()


def teacher_place(folder: Path) -> Path:
    """Where a run keeps the teacher that it trained."""
    return folder / "teacher" / "model"


def _load_or_train(session: BaseSession) -> Matcher | None:
    spec = session.recipe.teacher
    if spec is None or (spec.model is None and spec.train is None):
        return None
    if spec.model is not None:
        found = load_matcher(spec.model, spec.revision, bf16=spec.bf16)
        if spec.length is not None:
            found.limit_tokens(spec.length)
        return found
    place = teacher_place(session.folder)
    if not place.exists():
        _train(session, session.recipe, place)
    return load_matcher(place, bf16=spec.bf16)


def _train(session: BaseSession, recipe: Recipe, place: Path) -> None:
    spec, seed = recipe.teacher, recipe.teacher_seed
    assert spec is not None and spec.train is not None
    torch.manual_seed(seed)
    matcher = build(spec.train)
    how = Fit("teacher", session.work, session.log, seed, session.judged_dev)
    fit(matcher, spec.stages, lambda stage: session.lists(stage, seed), how)
    with main_first() as main:
        if main:
            matcher.save_pretrained(place)
