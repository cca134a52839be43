"""Choose the task of a recipe by its data."""

from __future__ import annotations

from pathlib import Path

from limbeck.data import load
from limbeck.data.by_kind import by_kind
from limbeck.recipe.recipe import Recipe
from limbeck.runs.pair_task import PairTask
from limbeck.runs.ranking_task import RankingTask
from limbeck.runs.task import Task


def open_task(recipe: Recipe, folder: Path) -> Task:
    """The task of a recipe's data; `folder` holds what students share."""
    data = load(recipe.data.source, needs_queries=not recipe.data.spans)
    return by_kind(data, lambda _: RankingTask(recipe, folder), lambda _: PairTask(recipe, folder))
