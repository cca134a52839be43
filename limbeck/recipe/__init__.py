"""The recipe: one YAML file with all settings of a run, and its validation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from limbeck.lazy import lazy_names

if TYPE_CHECKING:
    from limbeck.recipe.files import load_recipe
    from limbeck.recipe.recipe import Recipe

__all__ = ["Recipe", "load_recipe"]

__getattr__, __dir__ = lazy_names(__name__, {"Recipe": "limbeck.recipe.recipe", "load_recipe": "limbeck.recipe.files"})
