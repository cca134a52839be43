"""The reference of a run: the dual encoder whose embeddings a student learns.

It is the teacher if that is a dual encoder, otherwise the model that the student starts from, with all its layers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from limbeck.errors import LimbeckError
from limbeck.matchers import Matcher, MatcherConfig
from limbeck.matchers import load as load_matcher
from limbeck.matchers.encoding_matcher import EncodingMatcher, encodes_apart
from limbeck.runs.given_vectors import check_vectors, use_vectors
from limbeck.training.processes import is_main, main_first
from limbeck.training.stored_outputs import StoredOutputs, stored_embeddings

if TYPE_CHECKING:
    from limbeck.runs.task import Task


def has_one_vector(matcher: object) -> bool:
    """Whether a matcher has one vector per text."""
    return encodes_apart(matcher) and matcher.encoding(0).tokens is None


@dataclass
class Reference:
    """The dual encoder whose space a student should share, and its embeddings, cached with the run."""

    task: Task

    @cached_property
    def matcher(self) -> EncodingMatcher:
        teacher = self.task.teacher if self.is_known else None
        found = teacher if has_one_vector(teacher) else untrained_start(self.task.first_start())
        if not has_one_vector(found):
            problem = f"a {found.kind} has no embedding to match" if found is not None else "there is no dual encoder"
            raise LimbeckError(f"{problem}; give a teacher, or a student.init_from, that is a dual encoder")
        assert encodes_apart(found)
        return found

    @cached_property
    def embeddings(self) -> StoredOutputs:
        """Cached with the run; document vectors from the user are not computed again. The main process copies them."""
        found = stored_embeddings(self.matcher, self.task.folder / "teacher" / "embeddings")
        if self._given is not None:
            if self.is_known and self.matcher is not self.task.teacher:
                kind = self.task.teacher.kind if self.task.teacher is not None else "teacher without a model"
                problem = f"teacher.vectors: a {kind} has no document vectors"
                raise LimbeckError(f"{problem}; drop vectors, or give a teacher that is a dual encoder")
            use_vectors(self._given, found, self.matcher, self.task.corpus, is_main())
        return found

    def check_given(self) -> None:
        """Check document vectors from the user before a teacher is loaded."""
        if self._given is not None:
            check_vectors(self._given, len(self.task.corpus))

    def read_given(self) -> None:
        """Read or copy document vectors from the user now, in all processes, before training."""
        if self._given is not None:
            with main_first():
                _ = self.embeddings

    @property
    def _given(self) -> str | None:
        spec = self.task.recipe.teacher
        return None if spec is None else spec.vectors

    def serve_documents(self, matcher: Matcher) -> None:
        """Use stored vectors instead of a document tower that belongs to the teacher; it must not be trained."""
        if not self.is_known or not has_one_vector(self.task.teacher):
            return
        if has_one_vector(matcher) and matcher.identity(1) == self.matcher.identity(1):
            matcher.read_outputs_from(self.embeddings)

    @property
    def is_known(self) -> bool:
        """Whether the run's teacher is ready; before that it must not be used."""
        return self.task.teacher_is_ready

    def of(self, texts: Sequence[Sequence[str]]) -> list[np.ndarray]:
        """Its embeddings [n, dim] of texts at each position."""
        self.embeddings.add_all(texts)
        return [self.embeddings(list(some), position) for position, some in enumerate(texts)]


def untrained_start(spec: MatcherConfig) -> Matcher:
    """The start with all its layers and its own pooling, reading as many tokens as the model that starts from it.

    An encoder that was not trained for matching counts as a dual encoder: the cosine of its pooled vectors.
    """
    matcher = load_matcher(spec.init_from)
    matcher.limit_tokens(spec.document_length)
    return matcher
