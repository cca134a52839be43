"""Checks and settings for objectives that compare the attention of student and teacher."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from limbeck.errors import LimbeckError
from limbeck.matchers.base import Matcher
from limbeck.recipe.stage import Stage
from limbeck.signals import TEXT_ATTENTION

Layers = tuple[int, ...]


@contextmanager
def attention_shown(student: Matcher, teacher: Matcher | None, stage: Stage) -> Iterator[None]:
    """Inside the block, student and teacher show the attention of the layers that the stage's objectives compare, and
    the teacher truncates texts as the student does.
    """
    if not stage.student_signals & TEXT_ATTENTION:
        yield
        return
    if teacher is None:
        raise LimbeckError("virt: there is no live teacher, and attention is not stored; set teacher.live: true")
    student.attention_layers, teacher.attention_layers = layers_shown(student, teacher, stage)
    teacher.read_apart((student.text_tokens(0), student.text_tokens(1)))
    try:
        yield
    finally:
        student.attention_layers = teacher.attention_layers = None
        teacher.read_apart(None)


def layers_shown(student: Matcher, teacher: Matcher, stage: Stage) -> tuple[Layers, Layers]:
    """The layers of student and teacher that a stage compares. It is an error if they cannot be compared: an unknown
    family, different tokenizers, two different towers, or lengths, layers or heads that do not match.
    """
    objectives = [each for _, each in stage.weighted_objectives() if each.needs_student & TEXT_ATTENTION]
    if not objectives:
        return (), ()
    ours, documents, theirs = student.attention(0), student.attention(1), teacher.attention(0)
    if ours != documents:
        raise LimbeckError(
            "virt: the student's two towers differ in layers, heads or tokenizer; use towers of one kind"
        )
    if ours.tokenizer != theirs.tokenizer:
        problem = "virt: student and teacher split texts into different tokens, so their attention cannot be compared"
        raise LimbeckError(f"{problem}; start both from models with the same tokenizer")
    teacher.read_apart((student.text_tokens(0), student.text_tokens(1)))
    teacher.read_apart(None)
    pairs = [pair for each in objectives for pair in each.attended_layers(ours.sizes, theirs.sizes)]
    return tuple(sorted({own for own, _ in pairs})), tuple(sorted({other for _, other in pairs}))
