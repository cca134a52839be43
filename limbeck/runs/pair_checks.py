"""Check that a pair set and a recipe fit together before training; all conflicts are reported at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from limbeck.data import Pair, PairData
from limbeck.data.pairs import place_of
from limbeck.errors import LimbeckError
from limbeck.evaluation.pairs import CORRELATIONS, DEFAULTS, check_measures, scored_pairs
from limbeck.objectives import binary_ce, soft_binary_ce
from limbeck.recipe.recipe import Recipe
from limbeck.runs.pair_classes import class_count, has_classes, only_yes_or_no
from limbeck.training.pair_lists import label_array

Splits = Mapping[str, Sequence[Pair]]
CLASSES = "use class_ce and soft_class_ce, as the recipe dipair-classes does"


def check_pairs(recipe: Recipe, data: PairData, unlabelled: Sequence[Pair], measures: Sequence[str] | None) -> None:
    """Refuse what would fail after a teacher is trained, or would give meaningless results."""
    spec = recipe.data
    splits = {name: data.splits[name] for name in (spec.train, spec.dev, spec.test) if name in data.splits}
    problems = [
        *_texts(recipe, data.name, splits, unlabelled),
        *_labels(recipe, data, splits, measures),
        *_outputs(recipe),
        *_measures(recipe, data, splits, measures),
    ]
    if len(problems) == 1:
        raise LimbeckError(problems[0])
    if problems:
        told = " ".join(f"({number}) {problem}" for number, problem in enumerate(problems, 1))
        raise LimbeckError(f"{data.name}: {len(problems)} problems: {told}")


def _texts(recipe: Recipe, name: str, splits: Splits, unlabelled: Sequence[Pair]) -> Iterator[str]:
    """All pairs must have the same number of texts, which must match the models that read a fixed number."""
    count = next((len(pair.texts) for pairs in splits.values() for pair in pairs), 2)
    further = {recipe.data.unlabelled or "": unlabelled}
    for split, pairs in {**splits, **further}.items():
        number = next((number for number, pair in enumerate(pairs, 1) if len(pair.texts) != count), None)
        if number is not None:
            place = place_of(split if split in further else recipe.data.source, split, number)
            yield f"{place} has {len(pairs[number - 1].texts)} texts, others have {count}; give all the same number"
    trained = recipe.teacher.train if recipe.teacher is not None else None
    for who, spec in (("student", recipe.student), ("teacher.train", trained)):
        if spec is not None and spec.text_count not in (None, count):
            problem = f"{who}.tokens: is for {spec.text_count} texts, and {name} has {count} in a pair"
            yield f"{problem}; give one number for each text"


def _labels(recipe: Recipe, data: PairData, splits: Splits, measures: Sequence[str] | None) -> Iterator[str]:
    outputs, source = recipe.student.output_count, recipe.data.source
    if outputs > 1:
        yield from _first_each(source, splits, lambda pair: _no_class(pair, outputs))
        return
    if has_classes(recipe.stages):
        yield "student.outputs: is 1, and labels are not classes; label classes 0, 1, 2, ..."
        return
    if _learns_yes_or_no(recipe):
        if data.classes is not None and len(data.classes) > 2:
            yield f"{data.name}: labels are {len(data.classes)} names, but binary_ce needs yes or no; {CLASSES}"
            return
        yield from _first_each(source, splits, _several_numbers)
    if measures is None or not set(measures) <= set(CORRELATIONS):
        yield from _mixed(source, splits)


def _learns_yes_or_no(recipe: Recipe) -> bool:
    found = [each for stage in recipe.every_stage().values() for _, each in stage.weighted_objectives()]
    return any(isinstance(each, binary_ce) for each in found)


def _several_numbers(pair: Pair) -> str | None:
    told = (
        f"has a label of {len(pair.label)} numbers, but binary_ce needs one" if isinstance(pair.label, tuple) else None
    )
    return f"{told}; {CLASSES}" if told else None


def _no_class(pair: Pair, count: int) -> str | None:
    if isinstance(pair.label, tuple):
        fits, found = len(pair.label) == count, f"a label of {len(pair.label)} numbers"
    else:
        fits = pair.label is None or (pair.label % 1 == 0 and 0 <= pair.label < count)
        found = f"the label {pair.label}"
    remedy = f"label classes 0 to {count - 1}, or set outputs to the number of classes"
    return None if fits else f"has {found}, but student.outputs is {count}; {remedy}"


def _mixed(source: str, splits: Splits) -> Iterator[str]:
    """If the labels of one split are 0 and 1, all splits must have them: one other label would make the task graded.

    Training labels may be probabilities if dev and test have only 0 and 1.
    """
    labelled = {split: pairs for split, pairs in splits.items() if any(pair.label is not None for pair in pairs)}
    plain = next((split for split, pairs in labelled.items() if only_yes_or_no(pairs)), None)
    first = next(iter(labelled), None)
    if plain is None:
        return
    remedy = f"correct it, or set evaluation.measures to {', '.join(CORRELATIONS)}"

    def odd(pair: Pair) -> str | None:
        fits = pair.label in (0, 1, None) or (plain != first and isinstance(pair.label, float) and 0 <= pair.label <= 1)
        return None if fits else f"has the label {pair.label}, where {plain} has 0 and 1; {remedy}"

    yield from _first_each(source, labelled, odd)


def _first_each(source: str, splits: Splits, problem_of: Callable[[Pair], str | None]) -> Iterator[str]:
    """The first pair with a problem in each split, by file and line."""
    for split, pairs in splits.items():
        for number, pair in enumerate(pairs, 1):
            if problem := problem_of(pair):
                yield f"{place_of(source, split, number)} {problem}"
                break


def _outputs(recipe: Recipe) -> Iterator[str]:
    outputs = recipe.student.output_count
    trained = recipe.teacher.train if recipe.teacher is not None else None
    if trained is not None and trained.output_count != outputs and any(stage.needs_teacher for stage in recipe.stages):
        yield f"teacher.train.outputs is {trained.output_count} and student.outputs is {outputs}; use the same number"
    for place, stage in recipe.every_stage().items():
        count = trained.output_count if trained is not None and place.startswith("teacher") else outputs
        for _, each in stage.weighted_objectives():
            if count > 1 and isinstance(each, binary_ce | soft_binary_ce):
                better = "class_ce" if isinstance(each, binary_ce) else "soft_class_ce"
                yield f"{place}.objectives: {each} requires one output, and there are {count}; use {better}"


def _measures(recipe: Recipe, data: PairData, splits: Splits, measures: Sequence[str] | None) -> Iterator[str]:
    tested = [pair for pair in splits.get(recipe.data.test or "", []) if pair.label is not None]
    outputs = recipe.student.output_count
    if not tested or any(_no_class(pair, outputs) for pair in tested if outputs > 1):
        return
    try:
        task = scored_pairs(np.zeros((len(tested), outputs)), label_array(tested))
        check_measures(task, measures or DEFAULTS[task.kind])
    except LimbeckError as error:
        classes = class_count(data) or 0
        also = f"; if 0 to {classes - 1} are classes, {CLASSES}" if outputs == 1 and classes > 2 else ""
        yield f"evaluation.measures: {error}{also}"
