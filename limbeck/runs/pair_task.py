"""A pair task: match or not, which class, how similar. Pairs are lists of one; the rest is as for rankings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from limbeck.data import Pair, PairData, RankingData, load
from limbeck.data.by_kind import by_kind
from limbeck.errors import LimbeckError
from limbeck.evaluation.pair_result import PairResult
from limbeck.evaluation.pairs import DEFAULTS, PAIR_MEASURES, check_measures, evaluate_pairs, scored_pairs
from limbeck.matchers import Matcher
from limbeck.matchers.base import weights_digest
from limbeck.matchers.calibration import Calibration, calibrate
from limbeck.objectives.labels import binary_ce
from limbeck.progress import say
from limbeck.recipe.data_spec import DataSpec
from limbeck.recipe.evaluation_spec import EvaluationSpec
from limbeck.recipe.recipe import Recipe
from limbeck.recipe.stage import ListSpec, Stage
from limbeck.report.analyses.registry import analyses
from limbeck.runs.analyse import analyse_pairs
from limbeck.runs.pair_bench import PairBench
from limbeck.runs.pair_checks import check_pairs
from limbeck.runs.pair_classes import grade_range, scaled
from limbeck.runs.pair_splits import PairSplits, split_pairs, unlabelled_pairs
from limbeck.runs.results import Measured
from limbeck.runs.task import DevMeasure, Task
from limbeck.stores import ScoreStore
from limbeck.training.lists import TextLists, draw_rows
from limbeck.training.pair_lists import PairLists, label_array
from limbeck.training.pair_scores import open_pair_scores, pair_scores
from limbeck.training.processes import is_main
from limbeck.training.trainer import standardiser

REMEMBERED = 4  # number of models whose dev scores are kept


class PairTask(Task):
    """A pair set, and the teacher's scores of its pairs."""

    result_type = PairResult

    def __init__(self, recipe: Recipe, folder: Path) -> None:
        super().__init__(recipe, folder)
        self._scored: dict[str, np.ndarray] = {}
        _refuse_list_options(recipe)

    @cached_property
    def data(self) -> PairData:
        data = load(self.recipe.data.source)
        return by_kind(data, _refuse_ranking, lambda found: found)

    @cached_property
    def unlabelled(self) -> list[Pair]:
        path = self.recipe.data.unlabelled
        return unlabelled_pairs(path) if path is not None else []

    @cached_property
    def splits(self) -> PairSplits:
        return split_pairs(self.data, self.recipe.data, self.recipe.data_seed, self.unlabelled)

    def check(self, recipe: Recipe) -> None:
        check_pairs(recipe, self.data, self.unlabelled, self.measures)

    @property
    def has_test(self) -> bool:
        return bool(self.splits.test)

    def facts(self) -> dict[str, int]:
        splits = self.splits
        unlabelled = sum(pair.label is None for pair in splits.train)
        return {
            "queries_train": len(splits.train),
            "queries_unlabelled": unlabelled,
            "queries_dev": len(splits.dev),
            "queries_test": len(splits.test),
        }

    @property
    def measured_as(self) -> str:
        return "pairs"

    @cached_property
    def bench(self) -> PairBench:
        return PairBench(self)

    def require_outputs(self, who: str, matcher: Matcher) -> None:
        """Each class has its own output; this task does not check that teacher and student have the same number."""

    def can_measure(self, matcher: Matcher) -> bool:
        """Accept one score for a yes-or-no task as well as two classes."""
        wanted = self.recipe.student.output_count
        return matcher.outputs == wanted or max(matcher.outputs, wanted) <= 2

    def refuse_analyses(self, folder: Path, names: Sequence[str]) -> None:
        wrong = next((name for name in names if not analyses()[name].reads_pairs), None)
        if wrong is not None:
            problem = f"{folder}: is a run on pairs, and {wrong} requires rankings"
            raise LimbeckError(f"{problem}; its report has the tables")

    def analyse(self, measured: Sequence[Measured], folder: Path, names: Sequence[str], strict: bool = False) -> None:
        test = self.splits.test
        order = np.random.default_rng(self.recipe.data_seed).permutation(len(test)).tolist()
        analyse_pairs(self, [test[row].texts for row in order], measured, folder, names, strict)

    @cached_property
    def measures(self) -> list[str] | None:
        """The recipe's measures, or None for the defaults of the task."""
        given = self.recipe.evaluation.measures
        if given == EvaluationSpec().measures:
            return None
        wrong = [name for name in given if name not in PAIR_MEASURES]
        if wrong:
            raise LimbeckError(
                f"evaluation.measures: {wrong[0]} is a measure for rankings; for pairs use {', '.join(PAIR_MEASURES)}"
            )
        return given

    @cached_property
    def judged_dev(self) -> DevMeasure | None:
        dev = self.splits.dev
        if not dev or dev[0].label is None:
            return None
        labels = label_array(dev)
        outputs = self.recipe.student.output_count
        task = scored_pairs(np.zeros(len(dev) if outputs == 1 else (len(dev), outputs)), labels)
        check_measures(task, self.measures or DEFAULTS[task.kind])  # before hours of training

        def measure(matcher: Matcher) -> dict[str, float]:
            return evaluate_pairs(self._dev_scores(matcher), labels, self.measures)

        return measure

    def _dev_scores(self, matcher: Matcher) -> np.ndarray:
        """A model's scores of dev. They are computed once for evaluation, calibration and comparison of a student.

        The cache key is the weights, so it is not used while (possibly rounded) stored outputs replace a frozen
        encoder.
        """
        texts = [pair.texts for pair in self.splits.dev]
        if matcher.reads_stored_outputs:
            return matcher.score(texts)
        key = weights_digest(matcher)
        if key not in self._scored:
            self._scored = dict(list(self._scored.items())[1 - REMEMBERED :])
            self._scored[key] = matcher.score(texts)
        return self._scored[key]

    @cached_property
    def student_dev(self) -> DevMeasure | None:
        """How a student is evaluated during training; without labels, by its agreement with the teacher."""
        dev = self.splits.dev
        if self.judged_dev is not None or not dev or self.teacher is None:
            return self.judged_dev
        wanted = self.teacher_scores(dev)

        def measure(matcher: Matcher) -> dict[str, float]:
            scores = self._dev_scores(matcher)
            if scores.ndim == 2:
                return {"same_class": float((scores.argmax(1) == wanted.argmax(1)).mean())}
            return evaluate_pairs(scores, wanted, ["spearman"]) if np.ptp(wanted) else {"spearman": 0.0}

        return measure

    @cached_property
    def standardise(self) -> Callable[[Tensor, Tensor], Tensor] | None:
        spec = self.recipe.teacher
        if spec is None or spec.standardise == "none":
            return None
        if spec.standardise == "auto" and (
            spec.live or not self.teacher_gives_cosines("scaled to mean 0, deviation 1")
        ):
            return None
        if spec.standardise == "list":
            raise LimbeckError("teacher.standardise: list requires lists, and pairs have none; use global")
        return standardiser("global", torch.from_numpy(self.teacher_scores(self.splits.train)))

    @cached_property
    def store(self) -> ScoreStore:
        """The teacher's raw logits on disk."""
        assert self.teacher is not None
        return open_pair_scores(self.scores_place, self.teacher)

    def teacher_scores(self, pairs: Sequence[Pair]) -> np.ndarray:
        """The teacher's logits of pairs, [pairs] or [pairs, classes]; stored ones are not computed again."""
        assert self.teacher is not None
        return pair_scores(self.teacher, pairs, self.store)

    def after_training(self, student: Matcher, place: Path) -> None:
        """Probabilities and a threshold for yes-or-no tasks, from dev."""
        found = self.calibration(student)
        if found is not None:
            found.save(place)
            say(str(found))

    def calibration(self, matcher: Matcher) -> Calibration | None:
        """A model's probabilities and threshold, from dev; None if the task is not yes or no."""
        dev = self.splits.dev if self.judged_dev is not None else []
        labels = label_array(dev) if dev else np.zeros(0)
        if matcher.outputs != 1 or len(np.unique(labels)) != 2 or not np.isin(labels, (0, 1)).all():
            return None
        scores = self._dev_scores(matcher)
        try:
            return calibrate(scores, labels, self.recipe.evaluation.threshold)
        except LimbeckError as error:  # do not lose hours of training over it
            say(f"{error}; the threshold is chosen for f1 instead")
            return calibrate(scores, labels)

    def sample_texts(self, most: int | None, seed: int, positions: Sequence[int] = (0, 1)) -> list[list[str]]:
        columns: list[list[str]] = []
        for position in (0, 1):
            wanted = [pair.texts[position] for pair in self.splits.train] if position in positions else []
            known = set(columns[0]) if columns else set()
            columns.append([text for text in dict.fromkeys(wanted) if text not in known])
        share = None if most is None else most // len(positions)
        return [[some[row] for row in draw_rows([len(some)], share, seed)[0].tolist()] for some in columns]

    def lists(self, stage: Stage, seed: int) -> PairLists | TextLists:
        pairs = self.splits.train
        if stage.takes_texts:
            texts = [[pair.texts[at] for pair in pairs] for at in (0, 1)]
            wanted = [side in stage.student_signals for side in ("queries", "documents")]
            return TextLists(
                *(list(dict.fromkeys(some)) if asked else [] for some, asked in zip(texts, wanted, strict=True))
            )
        if not stage.needs_teacher:
            pairs = [pair for pair in pairs if pair.label is not None]
            if not pairs:
                problem = f"{self.data.name}: {', '.join(stage.objectives)} learns from labels, but there are none"
                raise LimbeckError(f"{problem}; label some pairs, or distil from a teacher with soft_binary_ce")
        labels = label_array(pairs)
        learns_yes_or_no = any(isinstance(each, binary_ce) for _, each in stage.weighted_objectives())
        if learns_yes_or_no and self.grades is not None:
            labels = scaled(labels, self.grades)
        teacher = self.recipe.teacher
        cached = "scores" in stage.teacher_signals and teacher is not None and not teacher.live
        return PairLists(pairs, labels, self.teacher_scores(pairs) if cached else None)

    @cached_property
    def grades(self) -> tuple[float, float] | None:
        """The ends of the scale of graded labels; None if labels are probabilities or classes."""
        ends = grade_range(self.data)
        if ends is not None and is_main():
            say(f"{self.data.name}: labels run from {ends[0]:g} to {ends[1]:g}; binary_ce scales them to 0 to 1")
        return ends


def _refuse_ranking(data: RankingData) -> PairData:
    raise LimbeckError(f"{data.name}: contains rankings, not pairs; give a pair file or a folder of them")


def _refuse_list_options(recipe: Recipe) -> None:
    for place, stage in recipe.every_stage().items():
        if stage.lists != ListSpec():
            raise LimbeckError(f"{place}.lists: pairs have no lists; drop it")
    if recipe.teacher is not None and recipe.teacher.only_scores:
        problem = "teacher.scores: scores of pairs that were made elsewhere must be labels"
        raise LimbeckError(f"{problem}; put probabilities into the label column and use binary_ce")
    if recipe.evaluation.bf16:
        raise LimbeckError("evaluation.bf16: is for rankings; drop it (a teacher of pairs has teacher.bf16)")
    for name in ("spans", "unlabelled_documents"):
        if getattr(recipe.data, name) != DataSpec.model_fields[name].default:
            raise LimbeckError(f"data.{name}: requires a ranking set, and these are pairs; drop it")
    for name in ("keep_positives", "min_positives"):
        if getattr(recipe.data, name) != DataSpec.model_fields[name].default:
            raise LimbeckError(f"data.{name}: requires rankings, and these are pairs; drop it")
