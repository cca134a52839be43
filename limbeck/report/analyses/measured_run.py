"""The input of an analysis: the models that a run or a sweep measured, with their scores of single documents."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from limbeck.data.dataset import Qrels, RankingData, Run
from limbeck.errors import LimbeckError

if TYPE_CHECKING:
    from limbeck.evaluation.pair_vectors import PairVectors
    from limbeck.evaluation.ranking_result import RankingResult
    from limbeck.matchers import Matcher
    from limbeck.objectives.attention import virt

Role = Literal["teacher", "baseline", "student"]
BM25 = "BM25"


@dataclass(frozen=True)
class MeasuredModel:
    """One row of a run's table, and the scores behind it."""

    name: str
    role: Role
    measures: Mapping[str, float]  # the first one decides which student is best
    result: RankingResult  # the measures of each test query
    run: Run  # of the test queries, and of training queries if some were measured
    distances: Sequence[float] = ()  # between pairs of test queries; empty without one vector per text
    significance: Mapping[str, Any] | None = None  # its test against another student
    query_ms: float | None = None  # to encode one query; None if it encodes no query by itself
    query_parameters: int | None = None  # of the modules that encode queries

    @property
    def quality(self) -> float:
        """The first measure."""
        return next(iter(self.measures.values()))


@dataclass(frozen=True)
class AttentionModels:
    """What the analysis of attention maps reads."""

    pairs: Sequence[tuple[str, str]]  # some test pairs
    teacher: Callable[[], Matcher]
    students: Mapping[str, Callable[[], Matcher]]  # those whose weights were kept
    objectives: Mapping[str, virt] = field(default_factory=dict)  # which layers belong together; of each student
    layer: int | None = None  # to draw, of the students; the last by default


def _no_attention() -> AttentionModels:
    raise LimbeckError("the teacher has no model to show attention; give teacher.model")


def _no_matrix() -> Run:
    raise LimbeckError("the teacher has no model to score a full matrix with; give teacher.model")


def _no_vectors(lists: Mapping[str, Sequence[str]]) -> PairVectors:
    raise LimbeckError("the teacher has no model to show vectors of pairs; give teacher.model")


@dataclass(frozen=True)
class MeasuredRun:
    """A finished run: its texts, its judgements, and the results of its models."""

    data: RankingData  # queries and documents by id
    labels: Qrels  # judgements of the test queries that analyses use
    models: Sequence[MeasuredModel]
    folder: Path = field(default_factory=Path)  # the run's directory
    train_labels: Qrels = field(default_factory=dict)
    dev_labels: Qrels = field(default_factory=dict)
    relevance_level: int = 1  # lowest relevant grade
    document_length: int = 128  # maximum tokens of a document for the student
    teacher_matrix: Callable[[], Run] = _no_matrix  # the teacher's scores of some queries, each with all documents
    teacher_vectors: Callable[[Mapping[str, Sequence[str]]], PairVectors] = _no_vectors  # of each query's documents
    attention: Callable[[], AttentionModels] = _no_attention

    @property
    def students(self) -> list[MeasuredModel]:
        return [model for model in self.models if model.role == "student"]

    @property
    def best_student(self) -> MeasuredModel:
        """The student that is best by the first measure."""
        return max(self.students, key=lambda model: model.quality)

    @property
    def teacher(self) -> MeasuredModel:
        """The teacher; an error if none was measured."""
        found = next((model for model in self.models if model.role == "teacher"), None)
        if found is None:
            raise LimbeckError("there is no teacher to compare with; give teacher.model or teacher.train")
        return found

    def scores(self, model: MeasuredModel, labels: Qrels | None = None) -> Run:
        """Query -> document -> the model's score, for the test queries or for those in `labels`."""
        wanted = self.labels if labels is None else labels
        return {query: scores for query, scores in model.run.items() if query in wanted}

    def all_scores(self, labels: Qrels | None = None) -> dict[str, Run]:
        """The scores of every model by name, except BM25, whose scores are not comparable."""
        return {model.name: self.scores(model, labels) for model in self.models if model.name != BM25}


@dataclass(frozen=True)
class MeasuredPairs:
    """A finished run on pairs."""

    attention: Callable[[], AttentionModels] = _no_attention
