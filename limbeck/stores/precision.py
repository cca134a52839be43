"""Vectors in fewer bytes, and the resulting error: float32, float16, or int8 with a scale per vector."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np

Precision = Literal["float32", "float16", "int8"]
PRECISIONS: tuple[str, ...] = get_args(Precision)


@dataclass(frozen=True)
class ReconstructionError:
    """The error between given vectors v and stored vectors v'; it can be summed over shards."""

    squared_error: float = 0.0  # sum of |v - v'|^2
    squared_norm: float = 0.0  # sum of |v|^2
    worst: float = 0.0  # the largest |v - v'| / |v| of a single vector

    @property
    def relative(self) -> float:
        """sqrt(sum |v - v'|^2 / sum |v|^2)."""
        return float(np.sqrt(self.squared_error / self.squared_norm)) if self.squared_norm else 0.0

    def __add__(self, other: ReconstructionError) -> ReconstructionError:
        return ReconstructionError(
            self.squared_error + other.squared_error,
            self.squared_norm + other.squared_norm,
            max(self.worst, other.worst),
        )

    def to_json(self) -> dict[str, Any]:
        """The record for the manifest; `relative` is only for people who read it."""
        return {
            "relative": self.relative,
            "worst": self.worst,
            "squared_error": self.squared_error,
            "squared_norm": self.squared_norm,
        }

    @classmethod
    def from_json(cls, record: dict[str, Any]) -> ReconstructionError:
        return cls(record["squared_error"], record["squared_norm"], record["worst"])


def pack(vectors: np.ndarray, precision: str) -> tuple[np.ndarray, np.ndarray | None]:
    """Vectors [..., dim] in stored form, and for int8 their scales [...]: v' = q * scale, scale = max|v| / 127."""
    if precision == "float32":
        return np.ascontiguousarray(vectors, dtype="<f4"), None
    if precision == "float16":
        with np.errstate(over="ignore"):
            return vectors.astype("<f2"), None
    scales = np.abs(vectors).max(axis=-1, initial=0.0).astype("<f4") / np.float32(127)
    divisor = np.where(scales > 0, scales, np.float32(1))
    return np.clip(np.rint(vectors / divisor[..., None]), -127, 127).astype(np.int8), scales


def unpack(values: np.ndarray, scales: np.ndarray | None) -> np.ndarray:
    """Stored vectors as float32."""
    if scales is None:
        return values.astype(np.float32, copy=False)
    return values.astype(np.float32) * scales[..., None]


def reconstruction_error(vectors: np.ndarray, values: np.ndarray, scales: np.ndarray | None) -> ReconstructionError:
    """Compare the given vectors with the stored ones."""
    lost = np.square(vectors - unpack(values, scales), dtype=np.float64).sum(axis=-1)
    norms = np.square(vectors, dtype=np.float64).sum(axis=-1)
    ratios = np.sqrt(lost / np.where(norms > 0, norms, 1))
    return ReconstructionError(float(lost.sum()), float(norms.sum()), float(ratios.max(initial=0.0)))
