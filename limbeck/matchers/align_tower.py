"""Add the closed-form map of `alignment.py` to a tower, as a Dense layer of the saved folder."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from sentence_transformers.base.modules import Dense, Normalize, Router
from torch import Tensor, nn

from limbeck.errors import LimbeckError
from limbeck.matchers.alignment import LinearMap, fit_map
from limbeck.matchers.chunks import SIDES, Features, Side, inferred
from limbeck.matchers.parts import as_dense
from limbeck.matchers.tower import Tower


def align_tower(
    tower: Tower, positions: Sequence[int], texts: Sequence[Sequence[str]], targets: Sequence[np.ndarray], seed: int = 0
) -> list[LinearMap]:
    """Map the towers at `positions` into the space of `targets` [n, dim], the reference's embeddings of `texts`.

    If both sides share a tower, they share one map, fitted on all texts; separate towers get separate maps.
    """
    groups = [[position] for position in positions] if isinstance(tower.model[0], Router) else [list(positions)]
    found = []
    for group in groups:
        group = [at for at in group if len(texts[at])]
        inputs = np.concatenate([pooled_outputs(tower, texts[at], SIDES[at]) for at in group])
        fitted = fit_map(inputs, np.concatenate([targets[at] for at in group]), seed)
        insert_map(tower, SIDES[group[0]], fitted)
        found.append(fitted)
    return found


def map_place(tower: Tower, side: Side) -> tuple[Any, int]:
    """The list of modules for a side's map, and the position in it: before any module that only scales vectors."""
    first: Any = tower.model[0]
    modules: Any = first.sub_modules[side] if isinstance(first, Router) else tower.model
    place = next((at for at, module in enumerate(modules) if isinstance(module, Normalize)), len(modules))
    return modules, place


def pooled_outputs(tower: Tower, texts: Sequence[str], side: Side) -> np.ndarray:
    """The output of a side's tower at the position of the map: [n, width]."""
    modules, place = map_place(tower, side)
    first = list(modules)[:place]

    def run(features: Features) -> Tensor:
        for module in first:
            told = {"task": side} if "task" in getattr(module, "forward_kwargs", ()) else {}
            features = module(features, **told)
        return features["sentence_embedding"]

    found = inferred(tower, list(texts), lambda block: tower.prepare(block, side), run, "Encoding texts to align")
    return torch.cat(list(found)).numpy()


def insert_map(tower: Tower, side: Side, fitted: LinearMap) -> None:
    """Insert a map into a side's tower."""
    modules, place = map_place(tower, side)
    following = next((module for module in list(modules)[place:] if isinstance(module, Dense)), None)
    if following is not None and following.in_features != len(fitted.bias):
        problem = f"the reference's embeddings have {len(fitted.bias)} numbers, the student's {following.in_features}"
        raise LimbeckError(f"align: {problem}; set student.dim to {len(fitted.bias)}, or drop scale")
    linear = nn.Linear(fitted.weight.shape[1], fitted.weight.shape[0])
    with torch.no_grad():
        linear.weight.copy_(torch.from_numpy(fitted.weight))
        linear.bias.copy_(torch.from_numpy(fitted.bias))
    modules.insert(place, as_dense(linear).to(next(tower.parameters()).device))
