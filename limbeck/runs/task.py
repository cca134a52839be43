"""A task, ranking or pairs: its data, its training lists, evaluation on dev and measurement on test.

Everything else in a run uses these methods and does not check which task it is.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar

from torch import Tensor

from limbeck.data import PairData, RankingData
from limbeck.data.texts import Texts
from limbeck.errors import LimbeckError
from limbeck.evaluation.system_result import SystemResult
from limbeck.matchers import Matcher, MatcherConfig
from limbeck.matchers.config import TEACHER
from limbeck.progress import say
from limbeck.recipe.recipe import Recipe
from limbeck.recipe.stage import Stage
from limbeck.runs.bench import Bench
from limbeck.runs.reference import Reference
from limbeck.runs.results import Measured
from limbeck.training.lists import Examples
from limbeck.training.processes import is_main
from limbeck.training.targets import scores_are_cosines

DevMeasure = Callable[[Matcher], dict[str, float]]


class Task(ABC):
    """One run's data and teacher; each is made once and cached."""

    result_type: ClassVar[type[SystemResult]]  # the type of result that `bench` gives

    def __init__(self, recipe: Recipe, folder: Path) -> None:
        self.recipe, self.folder = recipe, folder
        self.work, self.log = folder / "work", folder / "log.jsonl"
        self.teacher_failed = False  # whether it could not be loaded or trained
        self.teacher_is_ready = False  # until `prepare_teacher`
        self._teacher: Matcher | None = None
        self.reference = Reference(self)
        self.fitted: tuple[str, Matcher] | None = None  # the last start in closed form, and what it depends on
        self.warnings: list[str] = []  # for the table and the report; each is also printed at once

    def warn(self, line: str | None) -> None:
        """Print a line once, and keep it for the report."""
        if line is not None and line not in self.warnings:
            self.warnings.append(line)
            if is_main():
                say(f"warning: {line}")

    @property
    def teacher(self) -> Matcher | None:
        """The teacher's model, or None. Only available after `prepare_teacher`."""
        if not self.teacher_is_ready:
            raise RuntimeError("the teacher is not ready: call prepare_teacher first")
        return self._teacher

    @teacher.setter
    def teacher(self, found: Matcher | None) -> None:
        self.teacher_is_ready, self._teacher = True, found

    def teacher_gives_cosines(self, treatment: str) -> bool:
        """Whether the teacher's scores are cosines, which no temperature for logits fits; prints the treatment."""
        found = scores_are_cosines(self.teacher)
        if found and is_main():
            say(f"the teacher's scores are cosines: {treatment} for training (teacher.standardise: none leaves them)")
        return found

    @property
    @abstractmethod
    def data(self) -> RankingData | PairData: ...

    @property
    def corpus(self) -> Texts:
        """All documents, if a task has them in addition to the examples."""
        raise LimbeckError("teacher.vectors: pairs have no corpus, and vectors belong to one; drop teacher.vectors")

    @property
    @abstractmethod
    def measured_as(self) -> str:
        """The name of the task in metrics.json; the report chooses its words by it."""

    @property
    @abstractmethod
    def has_test(self) -> bool:
        """Whether there are labelled test examples to report on."""

    def no_test(self) -> str:
        """Why there are no labelled test examples."""
        return f"no labelled split {self.recipe.data.test!r}"

    @abstractmethod
    def facts(self) -> dict[str, int]:
        """The amount of data, for the report."""

    def check(self, recipe: Recipe) -> None:  # noqa: B027 (mistakes in a ranking set are found when it is read)
        """Refuse data that do not fit the recipe, before training."""

    @property
    @abstractmethod
    def judged_dev(self) -> DevMeasure | None:
        """How a model is evaluated during training, if dev has labels."""

    @property
    @abstractmethod
    def student_dev(self) -> DevMeasure | None:
        """How a student is evaluated during training; without labels, by its agreement with the teacher."""

    @property
    def snapshot_dev(self) -> DevMeasure | None:
        """Stores dev scores for the analysis of snapshots; None if there is no such analysis."""
        return None

    @property
    @abstractmethod
    def bench(self) -> Bench:
        """Measures all models on the test examples in the same way."""

    def measure_student(self, name: str, student: Matcher, recipe: Recipe) -> Measured:
        """A student's row, with its objectives."""
        objectives = " + ".join(text for stage in recipe.stages for text in stage.objectives)
        return self.bench.model(name, "student", student, objectives)

    def own_baselines(self) -> dict[str, tuple[str, Callable[[], Measured]]]:
        """Baselines that only this task has, by their names in a recipe: the row's name, and how to measure it."""
        return {}

    @abstractmethod
    def require_outputs(self, who: str, matcher: Matcher) -> None:
        """Refuse a model with more scores per pair than the task can use."""

    @abstractmethod
    def can_measure(self, matcher: Matcher) -> bool:
        """Whether a model's number of scores per pair fits the task."""

    def refuse_analyses(self, folder: Path, names: Sequence[str]) -> None:  # noqa: B027 (most tasks have all of them)
        """Raise an error if a finished run of this task cannot have the analyses in `names`."""

    def analyse(self, measured: Sequence[Measured], folder: Path, names: Sequence[str], strict: bool = False) -> None:  # noqa: B027
        """Compute those analyses in `names` that this task has, and store them in `folder`."""

    def answer(self, teacher: Matcher, name: str, student: Matcher, questions: Sequence[str]) -> list[dict[str, Any]]:
        """The answers of teacher and student to a user's own questions."""
        return []

    def read_given_scores(self) -> None:  # noqa: B027 (most tasks have none)
        """Read teacher scores from elsewhere, so that mistakes in them are found early."""

    @property
    @abstractmethod
    def standardise(self) -> Callable[[Tensor, Tensor], Tensor] | None:
        """The transformation of the teacher's scores before an objective uses them."""

    def after_training(self, student: Matcher, place: Path) -> None:  # noqa: B027 (most tasks keep nothing)
        """Save more files with a trained student."""

    @abstractmethod
    def sample_texts(self, most: int | None, seed: int, positions: Sequence[int] = (0, 1)) -> list[list[str]]:
        """Distinct training texts at `positions`, at most `most` in total, for closed-form fits."""

    @abstractmethod
    def lists(self, stage: Stage, seed: int) -> Examples:
        """The training data of a stage, with stored teacher scores if it needs them."""

    def student_spec(self, spec: MatcherConfig) -> MatcherConfig:
        """The student's config with `teacher` replaced by a folder; from a ColBERT teacher it takes the markers."""
        names = spec.taken_from_teacher
        if not names:
            return spec
        teacher = self.teacher
        assert self.recipe.teacher is not None
        given = self.recipe.teacher.model
        changed: dict[str, object] = {name: given or str(self.folder / "teacher" / "model") for name in names}
        if "init_from" in names and teacher is not None and teacher.prompts and getattr(spec, "prompts", None) == {}:
            changed["prompts"] = teacher.prompts
        return spec.model_copy(update=changed)

    def first_start(self) -> MatcherConfig:
        """The student's start; if that is the teacher, the teacher's own start."""
        recipe = self.recipe
        if recipe.student.init_from != TEACHER or recipe.teacher is None:
            return recipe.student
        first = recipe.teacher.train.init_from if recipe.teacher.train is not None else recipe.teacher.model
        return recipe.student.model_copy(update={"init_from": first})

    @property
    def scores_place(self) -> Path:
        """The folder in which a teacher's model stores its scores and finds existing ones."""
        spec = self.recipe.teacher
        place = Path(spec.scores) if spec is not None and spec.scores else self.folder / "teacher" / "scores"
        if place.is_file():
            raise LimbeckError(f"{place}: is a file; with a teacher's model, scores must name a directory")
        return place
