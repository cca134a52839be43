"""The size of an index on disk, by part."""

from __future__ import annotations

from pathlib import Path

from limbeck.search.index import SearchIndex

_DENSE = ("dense.faiss", "windows.npy", "keys.npy")


def part_bytes(index: SearchIndex) -> dict[str, int]:
    """The bytes of the dense part, the sparse part, the texts with their fields, and the model.

    Vectors that are stored elsewhere count as 32-bit numbers.
    """
    found = {"dense": 0, "sparse": 0, "texts": 0}
    for name, record in index.manifest.files.items():
        folder, file = Path(name).parts[0], Path(name).name
        part = "sparse" if folder == "sparse" else "dense" if file in _DENSE else "texts"
        found[part] += record.bytes
    facts = index.manifest.dense
    if facts is not None and facts.store is not None:
        found["dense"] += sum(segment.vectors for segment in index.manifest.segments) * facts.dim * 4
    model = index.path / "model"
    found["model"] = sum(file.stat().st_size for file in model.rglob("*") if file.is_file())
    return found
