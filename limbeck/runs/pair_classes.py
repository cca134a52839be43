"""What the labels of a pair set mean for a recipe: classes, with one output each, or grades on a scale."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from limbeck.data import Pair, PairData, load
from limbeck.data.by_kind import by_kind
from limbeck.objectives import class_ce, soft_class_ce
from limbeck.progress import say
from limbeck.recipe.files import load_recipe
from limbeck.recipe.recipe import Recipe
from limbeck.recipe.stage import Stage


def has_classes(stages: Iterable[Stage]) -> bool:
    """Whether some objective of the stages uses classes."""
    found = [objective for stage in stages for _, objective in stage.weighted_objectives()]
    return any(isinstance(objective, class_ce | soft_class_ce) for objective in found)


def with_classes(recipe: Recipe) -> Recipe:
    """The recipe with one output per class of its data, if its objectives use classes and it does not set outputs."""
    trained = recipe.teacher.train if recipe.teacher is not None else None
    wanting = ["student"] if recipe.student.output_count == 1 and has_classes(recipe.stages) else []
    if recipe.teacher is not None and trained is not None and trained.output_count == 1:
        wanting += ["teacher.train"] if has_classes(recipe.teacher.stages) else []
    data = load(recipe.data.source) if wanting else None
    count = by_kind(data, lambda _: None, class_count) if data is not None else None
    if data is None or count is None:
        return recipe
    say(f"{data.name}: labels of {count} classes; {' and '.join(f'{who}.outputs' for who in wanting)} set to {count}")
    return load_recipe(recipe, [f"{who}.outputs={count}" for who in wanting])


def class_count(data: PairData) -> int | None:
    """The number of classes of the labels; None if they are not classes."""
    if data.classes is not None:
        return len(data.classes)
    labels = [pair.label for pairs in data.splits.values() for pair in pairs if pair.label is not None]
    if labels and all(isinstance(label, tuple) for label in labels):
        return max(len(label) for label in labels if isinstance(label, tuple))
    whole = [label for label in labels if isinstance(label, int) and label >= 0]
    return max(whole) + 1 if whole and len(whole) == len(labels) else None


def grade_range(data: PairData) -> tuple[float, float] | None:
    """The ends of the scale of graded labels; None if labels are probabilities, names or soft labels."""
    labels = [pair.label for pairs in data.splits.values() for pair in pairs if pair.label is not None]
    numbers = [label for label in labels if not isinstance(label, tuple)]
    if data.classes is not None or not labels or len(numbers) < len(labels):
        return None
    low, high = min(numbers), max(numbers)
    return None if low >= 0 and high <= 1 else (float(min(0, low)), float(high))


def scaled(labels: np.ndarray, ends: tuple[float, float]) -> np.ndarray:
    """Grades as probabilities: the lowest becomes 0, the highest 1."""
    low, high = ends
    return ((labels - low) / (high - low)).astype(labels.dtype)


def only_yes_or_no(pairs: Sequence[Pair]) -> bool:
    return all(pair.label in (0, 1, None) for pair in pairs)
