"""What a pair set and a recipe have to agree on, looked at before anything is trained."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from limbeck.data import Pair, PairData
from limbeck.errors import LimbeckError
from limbeck.evaluation.pairs import CORRELATIONS, DEFAULTS, check_measures, pair_task
from limbeck.training.pair_lists import label_array
from limbeck.training.recipe import Recipe

Splits = Mapping[str, Sequence[Pair]]


def check_pairs(recipe: Recipe, data: PairData, unlabelled: Sequence[Pair], measures: Sequence[str] | None) -> None:
    """Refuse what else would fail when a teacher has been trained, or would not fail and mean nothing."""
    spec, outputs = recipe.data, recipe.student.outputs
    splits = {name: data.splits[name] for name in (spec.train, spec.dev, spec.test) if name in data.splits}
    _check_texts(recipe, data.name, splits, unlabelled)
    if outputs > 1:
        _check_classes(data.name, splits, outputs)
    elif measures is None or not set(measures) <= set(CORRELATIONS):
        _check_yes_or_no(data.name, splits)
    trained = recipe.teacher.train if recipe.teacher is not None else None
    if trained is not None and trained.outputs != outputs and any(stage.needs_teacher for stage in recipe.stages):
        problem = f"teacher.train.outputs is {trained.outputs} and student.outputs {outputs}"
        raise LimbeckError(f"{problem}; give both as many")
    tested = [pair for pair in splits.get(spec.test or "", []) if pair.label is not None]
    if tested:
        task = pair_task(np.zeros((len(tested), outputs)), label_array(tested))
        check_measures(task, measures or DEFAULTS[task.kind])


def _check_texts(recipe: Recipe, name: str, splits: Splits, unlabelled: Sequence[Pair]) -> None:
    """All pairs have as many texts, and a model that reads a number of texts reads that number."""
    count = next((len(pair.texts) for pairs in splits.values() for pair in pairs), 2)
    for split, pairs in splits.items():
        _check_count(f"{name}: of {split}", pairs, count)
    _check_count(f"{recipe.data.unlabelled}:", unlabelled, count)
    trained = recipe.teacher.train if recipe.teacher is not None else None
    for who, spec in (("student", recipe.student), ("teacher.train", trained)):
        if spec is not None and spec.kind == "dipair" and len(spec.tokens) != count:
            problem = f"{who}.tokens: is for {len(spec.tokens)} texts, and {name} has {count} in a pair"
            raise LimbeckError(f"{problem}; give one number for each text")


def _check_count(place: str, pairs: Sequence[Pair], count: int) -> None:
    for number, pair in enumerate(pairs, 1):
        if len(pair.texts) != count:
            raise LimbeckError(f"{place} pair {number} has {len(pair.texts)} texts, others {count}; give all as many")


def _check_classes(name: str, splits: Splits, count: int) -> None:
    for split, pairs in splits.items():
        for number, pair in enumerate(pairs, 1):
            if isinstance(pair.label, tuple):
                fits, found = len(pair.label) == count, f"a label of {len(pair.label)} numbers"
            else:
                fits = pair.label is None or (pair.label % 1 == 0 and 0 <= pair.label < count)
                found = f"the label {pair.label}"
            if not fits:
                problem = f"{name}: of {split} pair {number} has {found}, and student.outputs is {count}"
                raise LimbeckError(f"{problem}; label classes 0 to {count - 1}, or set outputs to their number")


def _check_yes_or_no(name: str, splits: Splits) -> None:
    """Where the labels of the first split are 0 and 1, so are all: one other would make the task a graded one."""
    labelled = {split: pairs for split, pairs in splits.items() if any(pair.label is not None for pair in pairs)}
    first = next(iter(labelled), None)
    if first is None or not all(pair.label in (0, 1, None) for pair in labelled[first]):
        return
    for split, pairs in labelled.items():
        for number, pair in enumerate(pairs, 1):
            if pair.label not in (0, 1, None):
                problem = f"{name}: of {split} pair {number} has the label {pair.label}, where {first} has 0 and 1"
                raise LimbeckError(f"{problem}; mend it, or set evaluation.measures to {', '.join(CORRELATIONS)}")
