"""Modules that are only trained with a student: a head that predicts tokens, an objective's projection.

Objectives declare them (`Objective.heads`). They are built from the sizes of student and teacher, saved in
checkpoints, and at the end folded into the student (`Objective.folds`) or dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from limbeck.errors import LimbeckError
from limbeck.matchers.base import Matcher
from limbeck.matchers.token_head import TOKEN_HEAD
from limbeck.objectives import Objective
from limbeck.recipe.stage import Stage
from limbeck.signals import TOKEN_SIGNALS, Sizes

CANNOT = {
    "token_logits": "masked_lm: a {kind} cannot predict masked tokens; use kind: dual_encoder, or drop masked_lm",
    "seen_token_logits": "reconstruct: a {kind} does not read pairs; use kind: cross_encoder, or drop reconstruct",
}


@contextmanager
def training_heads(matcher: Matcher, stages: Sequence[Stage], teacher: Matcher | None, seed: int) -> Iterator[None]:
    """Add the heads that the objectives of all stages need to a matcher. All stages have all heads, so that a stage can
    continue with what another has learnt, and every file of weights has the same names.
    """
    tokens = frozenset[str]().union(*(stage.student_signals & TOKEN_SIGNALS for stage in stages))
    for signal in sorted(tokens - matcher.shows):
        raise LimbeckError(CANNOT[signal].format(kind=matcher.kind))
    if tokens:
        matcher.add_token_head(seed)
    declared = list(_declaring(stages))
    for objective in declared:
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            parts = objective.heads(_sizes(matcher, teacher))
        matcher.heads[objective.name] = nn.ModuleDict(parts).to(matcher.device)
    try:
        yield
        for objective in declared:
            _fold(matcher, objective)
    finally:
        matcher.heads = nn.ModuleDict()


def learn_where_asked(matcher: Matcher, stage: Stage) -> None:
    """Freeze heads that a stage does not use: several processes would wait for their gradients."""
    wanted = {objective.name for _, objective in stage.weighted_objectives()}
    wanted |= {TOKEN_HEAD} if stage.restores_tokens else set()
    for name, head in matcher.heads.items():
        head.requires_grad_(name in wanted)


def with_heads(objective: Objective, heads: nn.ModuleDict) -> Callable[..., Tensor]:
    """The objective with its heads, if it declares any."""
    call: Callable[..., Tensor] = objective
    return partial(call, heads=heads[objective.name]) if objective.name in heads else call


def _declaring(stages: Sequence[Stage]) -> Iterator[Objective]:
    """The objectives of all stages that train something; objectives with the same name share it."""
    known = {each.name: each for stage in stages for _, each in stage.weighted_objectives() if each.has_heads}
    yield from known.values()


def _sizes(matcher: Matcher, teacher: Matcher | None) -> Sizes:
    own = matcher.encoding(0)
    if own is None:
        raise LimbeckError(f"a {matcher.kind} has no embedding to project; use kind: dual_encoder")
    return Sizes(own.dim, teacher.embedding_dim if teacher is not None else None)


def _fold(matcher: Matcher, objective: Objective) -> None:
    parts: Any = matcher.heads[objective.name]
    for name in objective.folds:
        if name in parts:
            matcher.append_projection(parts[name])
