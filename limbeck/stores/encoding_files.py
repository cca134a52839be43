"""The files of one shard of encodings.

vectors.npy   [texts, dim], [texts, tokens, dim], or for ragged ones [all vectors, dim]
scales.npy    int8 only: the factor of each vector
offsets.npy   ragged only: where each text's vectors start, [texts + 1]
index.npy     [3, texts]: sorted digests of the texts, and their rows
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from limbeck.errors import LimbeckError
from limbeck.stores.digests import digests_in_row_order, sorted_index
from limbeck.stores.mapped import FileRecord, write_array
from limbeck.stores.precision import ReconstructionError, pack, reconstruction_error
from limbeck.stores.ragged import Ragged
from limbeck.stores.shards import Facts, Files, MappedShard

FLOAT16_OVERFLOW = 65520.0  # rounds to infinity


def as_ragged(vectors: np.ndarray | Ragged | Sequence[np.ndarray], texts: int, shape: tuple[int | None, ...]) -> Ragged:
    """Vectors in any accepted form, after a check of their shape.

    `shape` is the shape of one text's vectors: (dim,), (tokens, dim), or (None, dim) if the number differs.
    """
    if shape[0] is not None or len(shape) == 1:
        array = np.asarray(vectors, dtype=np.float32)
        if array.shape != (texts, *shape):
            raise LimbeckError(f"vectors of {texts} texts have shape {array.shape}; the store needs {(texts, *shape)}")
        tokens = shape[0] if len(shape) == 2 else 1
        return Ragged(array.reshape(-1, array.shape[-1]), np.full(texts, tokens, dtype=np.int64))
    ragged = vectors if isinstance(vectors, Ragged) else Ragged.from_list(list(vectors))
    fits = ragged.vectors.ndim == 2 and ragged.vectors.shape[1] == shape[1]
    if len(ragged) != texts or (texts and not fits) or ragged.lengths.sum() != len(ragged.vectors):
        problem = f"vectors of {texts} texts are {ragged.vectors.shape} in {len(ragged)} parts"
        raise LimbeckError(f"{problem}; the store needs one part [any, {shape[1]}] per text")
    return ragged


def refuse_non_finite(vectors: Ragged, texts: Sequence[str], dtype: str) -> None:
    """Refuse a vector that is not finite, as given or as stored; the error names its text."""
    limit = FLOAT16_OVERFLOW if dtype == "float16" else np.inf
    good = (np.abs(vectors.vectors) < limit).all(axis=-1)  # false for NaN, and for infinity
    if not good.all():
        text = texts[int(np.searchsorted(vectors.offsets, np.argmin(good), side="right")) - 1]
        remedy = "check the model for overflow, or store float32"
        raise LimbeckError(f"the vector of {text[:60]!r} is not finite as {dtype}; {remedy}")


def write_shard(
    folder: Path, digests: np.ndarray, vectors: Ragged, shape: tuple[int | None, ...], dtype: str
) -> tuple[Files, Facts]:
    """Write the files of a new shard."""
    values, scales = pack(vectors.vectors, dtype)
    is_ragged = len(shape) == 2 and shape[0] is None
    files = {"index.npy": _write(folder / "index.npy", sorted_index(digests))}
    if is_ragged:
        files["offsets.npy"] = _write(folder / "offsets.npy", vectors.offsets)
    if scales is not None:
        files["scales.npy"] = _write(folder / "scales.npy", scales if is_ragged else scales.reshape(-1, *shape[:-1]))
    files["vectors.npy"] = _write(folder / "vectors.npy", values if is_ragged else values.reshape(-1, *shape))
    exact = dtype == "float32"
    return files, {} if exact else reconstruction_error(vectors.vectors, values, scales).to_json()


def merge_shards(sources: Sequence[MappedShard], folder: Path) -> tuple[Files, Facts]:
    """Write several shards as one, rows in order, without holding the vectors in memory."""
    files = {}
    for name in sources[0].shard.files:
        arrays = [source[name].array for source in sources]
        if name == "index.npy":
            joined = np.concatenate([digests_in_row_order(index) for index in arrays])
            files[name] = _write(folder / name, sorted_index(joined))
        elif name == "offsets.npy":
            lengths = np.concatenate([np.diff(offsets) for offsets in arrays])
            files[name] = _write(folder / name, np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64))
        else:
            rows = sum(len(array) for array in arrays)
            files[name] = write_array(folder / name, _pieces(arrays), rows, like=arrays[0])
    errors = [ReconstructionError.from_json(source.shard.facts) for source in sources if source.shard.facts]
    return files, sum(errors, ReconstructionError()).to_json() if errors else {}


def _write(path: Path, array: np.ndarray) -> FileRecord:
    return write_array(path, [array], len(array), like=array)


def _pieces(arrays: Sequence[np.ndarray], rows: int = 65536) -> Iterable[np.ndarray]:
    for array in arrays:
        for start in range(0, len(array), rows):
            yield array[start : start + rows]
