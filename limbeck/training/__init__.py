"""Training: recipes, stages, and the whole way from a teacher to a student."""

from __future__ import annotations

from typing import TYPE_CHECKING

from limbeck.lazy import lazy_names

if TYPE_CHECKING:
    from limbeck.training.recipe import Recipe
    from limbeck.training.recipe_files import load_recipe
    from limbeck.training.run import Result, distill

__all__ = ["Recipe", "Result", "distill", "load_recipe"]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "Recipe": "limbeck.training.recipe",
        "Result": "limbeck.training.run",
        "distill": "limbeck.training.run",
        "load_recipe": "limbeck.training.recipe_files",
    },
)
