"""A student before its first stage: choose its layers, build it, and map it into the space of its reference."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from transformers import AutoConfig

from limbeck.errors import LimbeckError
from limbeck.matchers import Matcher, MatcherConfig, build
from limbeck.matchers.depth import refuse_absent_layers
from limbeck.matchers.encoding_matcher import EncodingMatcher
from limbeck.matchers.layer_choice import choose_layers, closeness, subsets_in_words, wanted_layers
from limbeck.matchers.safe_loading import HERE_ONLY
from limbeck.matchers.starts import local_start, start_of
from limbeck.progress import say
from limbeck.recipe.recipe import Recipe
from limbeck.recipe.stage import Stage
from limbeck.runs.reference import Reference
from limbeck.runs.task import Task
from limbeck.sealed import read_if_whole, write_sealed
from limbeck.training.processes import main_first
from limbeck.training.stages import frozen
from limbeck.training.teachers import EMBEDDINGS, require_signals

SHORT = "a"  # a text that is short enough for every model
LAYERS_ON = 400  # texts on which subsets of layers are compared


def start_student(task: Task, recipe: Recipe, work: Path) -> Matcher:
    """The recipe's student before its first stage, after all steps without gradients."""
    config, seed, reference = task.student_spec(recipe.student), recipe.seed, task.reference
    if isinstance(config.layers, str):
        config = config.model_copy(update={"layers": _chosen_layers(task, config, reference, work, seed)})
    student = untrained_student(recipe.stages, config, seed)
    known = f"{config.model_dump_json()} {seed}"
    if task.fitted is not None and task.fitted[0] == known:
        return deepcopy(task.fitted[1])
    if "document" in recipe.student.taken_from_teacher and recipe.teacher is not None and recipe.teacher.length:
        student.limit_tokens(recipe.teacher.length)  # its document tower reads what the teacher reads
    aligns, matches = (
        getattr(config, "align", False),
        any(stage.teacher_signals & EMBEDDINGS for stage in recipe.stages),
    )
    if aligns or matches:
        _documents_of_reference(student, reference.matcher)
    if aligns:
        texts = task.sample_texts(student.aligned_on, seed, student.aligned_positions)
        for cosine in student.align(texts, reference.of(texts), reference.matcher, seed):
            say(f"aligned with a cosine of {cosine:.3f} to the reference on held-out texts")
        if getattr(config, "encoder", None) == "static":  # its closed form takes longest
            task.fitted = (known, deepcopy(student))
    elif matches:
        _same_size(student, reference.matcher, seed)
    return student


def untrained_student(stages: Sequence[Stage], config: MatcherConfig, seed: int) -> Matcher:
    """The student of a config, checked that it can freeze and compute what its stages need."""
    if isinstance(config.layers, str):  # any subset will do to check the rest
        config = config.model_copy(update={"layers": 1})
    torch.manual_seed(seed)
    student = build(config)
    for stage in stages:
        still = frozen(student, stage.freeze)
        if not stage.restores_tokens:  # a token head does not exist yet
            still.leaves_something()
        require_signals("student", student, stage.student_signals)
    return student


def _documents_of_reference(student: Matcher, reference: EncodingMatcher) -> None:
    """Refuse queries that learn the space of one model while documents come from another.

    Models that differ only in lengths or precision count as the same, so a short text is compared.
    """
    if 1 in student.trained_positions or student.identity(1) == reference.identity(1):
        return
    known: Any = student
    theirs, ours = (np.asarray(matcher.encode([SHORT], 1)) for matcher in (reference, known))
    if theirs.shape != ours.shape or not np.allclose(theirs, ours, rtol=0.05, atol=0.02 * np.abs(ours).max()):
        problem = "student.document is another model than the one whose embeddings the queries learn"
        raise LimbeckError(f"{problem}; set student.document: teacher, or drop align and match_embeddings")


def _same_size(student: Matcher, reference: EncodingMatcher, seed: int) -> None:
    """If a student's embeddings have another size than its reference's, add a projection to that size."""
    ours, theirs = student.encoding(0), reference.encoding(0)
    if ours is None or ours.dim == theirs.dim:
        return
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        linear = nn.Linear(ours.dim, theirs.dim, bias=False)
        nn.init.orthogonal_(linear.weight)
    student.append_projection(linear)


def _chosen_layers(task: Task, config: MatcherConfig, reference: Reference, work: Path, seed: int) -> tuple[int, ...]:
    """The layers that `auto` chooses; a resumed run reuses its earlier choice."""
    place = work / "layers.json"
    with main_first() as main:
        if main and read_if_whole(place) is None:
            chosen = list(_try_layers(task, config, reference, seed))
            work.mkdir(parents=True, exist_ok=True)  # after the choice: a refused one leaves nothing behind
            write_sealed(place, {"layers": chosen})
    found = read_if_whole(place)
    assert found is not None
    return tuple(found["layers"])


def check_layers(config: MatcherConfig, teacher: MatcherConfig) -> None:
    """Refuse layers that a student wants of its teacher, and that the teacher will not have once it is trained."""
    if config.layers is None or getattr(teacher, "encoder", "transformer") == "static":
        return
    kept = teacher.layers
    there = kept if isinstance(kept, int) else len(kept) if isinstance(kept, tuple) else _layers_in(teacher)
    if isinstance(config.layers, str):
        wanted_layers(config.layers, there, "the teacher")
    else:
        refuse_absent_layers(config.layers, there, "the teacher")


def _layers_in(config: MatcherConfig) -> int:
    """The number of layers of the model that a config starts from; if it has separate towers, of the queries'."""
    start = start_of(local_start(config), "query").init_from
    return int(AutoConfig.from_pretrained(start, **HERE_ONLY).num_hidden_layers)


def _try_layers(task: Task, config: MatcherConfig, reference: Reference, seed: int) -> tuple[int, ...]:
    there = _layers_in(config)
    count = wanted_layers(str(config.layers), there, config.init_from)
    texts = task.sample_texts(LAYERS_ON, seed)
    targets = reference.of(texts)

    def judge(layers: tuple[int, ...]) -> float:
        student = build(config.model_copy(update={"layers": layers}))
        positions = student.trained_positions
        outputs = np.concatenate([student.pooled(texts[at], at) for at in positions])
        return closeness(outputs, np.concatenate([targets[at] for at in positions]), seed)

    best, found = choose_layers(there, count, judge)
    say(f"layers {list(best)}: the closest to the reference ({', '.join(subsets_in_words(found, count))})")
    return best
