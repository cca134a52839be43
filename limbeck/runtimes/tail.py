"""What comes behind the transformer of a text, in numpy: pooling, projections, normalisation. It needs no torch.

A text's states have no padding, so every token counts. The numbers are those of sentence-transformers' modules. All
steps but the pooling take one vector [width], or the vectors of all tokens [tokens, width].
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

POOLINGS: dict[str, Callable[[np.ndarray], np.ndarray]] = {  # states [tokens, width] to a vector [width]
    "cls": lambda states: states[0],
    "max": lambda states: states.max(axis=0),
    "mean": lambda states: states.mean(axis=0),
    "mean_sqrt_len_tokens": lambda states: states.sum(axis=0) / np.float32(np.sqrt(len(states))),
    "lasttoken": lambda states: states[-1],
}
ACTIVATIONS: dict[str, Callable[[np.ndarray], np.ndarray]] = {"identity": lambda vector: vector, "tanh": np.tanh}


@dataclass(frozen=True)
class Step:
    """One module: what it does, and its weights."""

    kind: str  # pooling, dense, layer_norm or normalize
    settings: dict[str, Any] = field(default_factory=dict)
    weights: dict[str, np.ndarray] = field(default_factory=dict)

    def apply(self, value: np.ndarray) -> np.ndarray:
        return STEPS[self.kind](value, self.settings, self.weights)


def pooled(states: np.ndarray, steps: Sequence[Step]) -> np.ndarray:
    """The vector [dim] of a text's states [tokens, width]; without a pooling, vectors of its tokens."""
    for step in steps:
        states = step.apply(states)
    return states


Weights = Mapping[str, np.ndarray]
Settings = Mapping[str, Any]


def _pooling(states: np.ndarray, settings: Settings, weights: Weights) -> np.ndarray:
    return POOLINGS[settings["mode"]](states)


def _dense(vector: np.ndarray, settings: Settings, weights: Weights) -> np.ndarray:
    product = vector @ weights["weight"].T
    return ACTIVATIONS[settings["activation"]](product + weights["bias"] if "bias" in weights else product)


def _layer_norm(vector: np.ndarray, settings: Settings, weights: Weights) -> np.ndarray:
    centred = vector - vector.mean(axis=-1, keepdims=True)
    spread = np.sqrt((centred**2).mean(axis=-1, keepdims=True) + np.float32(settings["eps"]))
    return centred / spread * weights["weight"] + weights["bias"]


def _normalize(vector: np.ndarray, settings: Settings, weights: Weights) -> np.ndarray:
    return vector / np.maximum(np.linalg.norm(vector, axis=-1, keepdims=True), np.float32(1e-12))


STEPS: dict[str, Callable[[np.ndarray, Settings, Weights], np.ndarray]] = {
    "pooling": _pooling,
    "dense": _dense,
    "layer_norm": _layer_norm,
    "normalize": _normalize,
}
