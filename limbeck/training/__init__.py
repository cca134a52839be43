"""Training: recipes, stages, and the whole way from a teacher to a student."""

from limbeck.training.recipe import Recipe
from limbeck.training.recipe_files import load_recipe
from limbeck.training.run import Result, distill

__all__ = ["Recipe", "Result", "distill", "load_recipe"]
