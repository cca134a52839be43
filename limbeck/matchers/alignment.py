"""The closed form that maps one model's vectors into another's space: ridge regression in seconds, without gradients.

A shallow student's pooled outputs X and its reference's embeddings T of the same texts give the linear map

    W, b  =  argmin  sum_i || W x_i + b - t_i ||^2  +  lambda || W ||^2

with lambda chosen on held-out texts by the mean cosine to the reference.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from limbeck.errors import LimbeckError

STRENGTHS = (1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0)  # lambda relative to the mean variance of the inputs, times n
HELD_OUT = 0.1
FEWEST = 20  # minimum number of texts


@dataclass(frozen=True)
class LinearMap:
    """x -> weight @ x + bias, and its quality on texts that it was not fitted to."""

    weight: np.ndarray  # [out, in]
    bias: np.ndarray  # [out]
    strength: float  # the chosen lambda, relative as above
    cosine: float  # mean cosine to the reference on held-out texts

    def __call__(self, inputs: np.ndarray) -> np.ndarray:
        return inputs @ self.weight.T + self.bias


def fit_map(
    inputs: np.ndarray, targets: np.ndarray, seed: int = 0, strengths: Sequence[float] = STRENGTHS
) -> LinearMap:
    """The map from `inputs` [n, in] to `targets` [n, out]; the final fit uses all texts and the chosen lambda."""
    if len(inputs) != len(targets) or len(inputs) < FEWEST:
        raise LimbeckError(f"a map needs at least {FEWEST} texts, and there are {len(inputs)}; give more texts")
    order = np.random.default_rng(seed).permutation(len(inputs))
    held = max(2, round(HELD_OUT * len(inputs)))
    solve = _solver(inputs[order[held:]], targets[order[held:]])
    cosines = {}
    for strength in strengths:
        weight, bias = solve(strength)
        cosines[strength] = mean_cosine(inputs[order[:held]] @ weight.T + bias, targets[order[:held]])
    best = max(cosines, key=lambda strength: cosines[strength])
    weight, bias = _solver(inputs, targets)(best)
    return LinearMap(weight.astype(np.float32), bias.astype(np.float32), best, cosines[best])


def _solver(inputs: np.ndarray, targets: np.ndarray) -> Callable[[float], tuple[np.ndarray, np.ndarray]]:
    """Ridge regression for any strength, from one eigendecomposition of the inputs' covariance."""
    x, t = inputs.astype(np.float64), targets.astype(np.float64)
    mean_x, mean_t = x.mean(0), t.mean(0)
    x, t = x - mean_x, t - mean_t
    values, vectors = np.linalg.eigh(x.T @ x)  # [in], [in, in]
    rotated = vectors.T @ (x.T @ t)  # [in, out]
    mean_variance = max(float(values.mean()), np.finfo(np.float64).tiny)

    def solve(strength: float) -> tuple[np.ndarray, np.ndarray]:
        shrunk = rotated / (np.maximum(values, 0.0) + strength * mean_variance)[:, None]
        weight = (vectors @ shrunk).T  # [out, in]
        return weight, mean_t - weight @ mean_x

    return solve


def mean_cosine(ours: np.ndarray, theirs: np.ndarray) -> float:
    """The mean cosine between corresponding rows; a zero vector has cosine 0."""
    norms = np.linalg.norm(ours, axis=1) * np.linalg.norm(theirs, axis=1)
    return float(np.mean((ours * theirs).sum(1) / np.where(norms > 0, norms, 1.0)))
