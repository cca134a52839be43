"""Runs: from a recipe to a folder with a student, its measures and a report."""

from __future__ import annotations

from typing import TYPE_CHECKING

from limbeck.lazy import lazy_names

if TYPE_CHECKING:
    from limbeck.runs.run import distill
    from limbeck.runs.run_folder import Result

__all__ = ["Result", "distill"]

__getattr__, __dir__ = lazy_names(__name__, {"Result": "limbeck.runs.run_folder", "distill": "limbeck.runs.run"})
