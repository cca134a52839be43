"""The small BEIR folder and the recipe for it."""

from tests.training.conftest import beir, recipe  # noqa: F401  (fixtures)
