"""Least squares with a prior: for a few features, and for many sparse ones."""

from __future__ import annotations

import numpy as np
from scipy.sparse import csr_matrix

TOLERANCE = 1e-2  # residual relative to that of the prior; 1e-3 takes three times as long without benefit
MOST_STEPS = 100
SMALL = 1e-3  # ridge strength of a map, relative to the mean square of its features


def linear_map(inputs: np.ndarray, targets: np.ndarray, small: float = SMALL) -> np.ndarray:
    """The map M [width, dim] that minimises |inputs M - targets|; both are [n, ...]."""
    square = (inputs.T @ inputs).astype(np.float64)
    held = small * np.trace(square) / len(square) + np.finfo(np.float32).tiny
    return np.linalg.solve(square + held * np.eye(len(square)), inputs.T @ targets).astype(np.float32)


def ridge(
    design: csr_matrix,
    targets: np.ndarray,
    strength: float,
    prior: np.ndarray,
    start: np.ndarray | None = None,
    tolerance: float = TOLERANCE,
    steps: int = MOST_STEPS,
) -> np.ndarray:
    """The W [features, dim] that minimises |XW - T|^2 + strength |W - prior|^2; `start` is an initial guess.

    Conjugate gradients on (X'X + strength) D = X'(T - X prior), W = prior + D: each column has its own step size, and
    all share one product. A diagonal preconditioner is used, because word frequencies differ by a factor of thousands.
    """
    wanted = design.T @ (targets - design @ prior)  # [features, dim]
    least = np.finfo(wanted.dtype).tiny
    weight = np.asarray(design.power(2).sum(axis=0)).ravel() + strength
    scale = (1 / np.maximum(weight, least))[:, None].astype(wanted.dtype)
    found = np.zeros_like(wanted) if start is None else start - prior
    left = wanted - _normal(design, found, strength)
    direction = left * scale
    size = _dots(left, direction)
    enough = tolerance**2 * _dots(wanted, wanted * scale)
    for _ in range(steps):
        if (size <= enough).all():
            break
        moved = _normal(design, direction, strength)
        step = size / np.maximum(_dots(direction, moved), least)
        found += step * direction
        left -= step * moved
        scaled = left * scale
        before, size = size, _dots(left, scaled)
        direction = scaled + size / np.maximum(before, least) * direction
    return prior + found


def _normal(design: csr_matrix, columns: np.ndarray, strength: float) -> np.ndarray:
    return design.T @ (design @ columns) + strength * columns


def _dots(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """The inner product of corresponding columns: [dim]."""
    return np.einsum("td,td->d", first, second)
