"""The base class for all parts of a recipe."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Part(BaseModel):
    """A part of a recipe: no unknown keys, no change after validation."""

    model_config = ConfigDict(extra="forbid", frozen=True)
