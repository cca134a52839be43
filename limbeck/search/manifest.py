"""`index.json`: the list of an index's files. Files that it does not list do not belong to the index.

DIR/index.json              this list; replaced atomically
DIR/model/                  the model, so that the folder is self-contained
DIR/segments/000001-1f2e../ passages: texts, fields, vectors; one more whenever passages are added
DIR/sparse/000001-1f2e../   BM25 over all passages
DIR/deleted/000002-77aa..npy  which passages of the segments are deleted
DIR/verified.json           which large files were compared with their checksums (`limbeck.search.checks`)
DIR/work/                   encodings, while something is being built
"""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from limbeck.errors import bad_input
from limbeck.files import digest, read_json, write_json
from limbeck.stores.manifest import canonical
from limbeck.stores.mapped import FileRecord

KIND = "limbeck index"
VERSION = 1
NAME = "index.json"
REMEDY = "build the index again"
_PART = re.compile(r"\d{6,}-[0-9a-f]{8}(\.npy)?")


@dataclass(frozen=True)
class Segment:
    """Passages that were added together. `kind` and `effort` describe the index of its vectors."""

    name: str
    passages: int
    vectors: int = 0
    kind: str | None = None
    effort: int | None = None


@dataclass(frozen=True)
class DenseFacts:
    """How the vectors were made. `store` is the address of a Milvus collection with the name `owner`."""

    kind: str
    dim: int
    similarity: str
    model: str  # digest of the model's identity
    window: int | None = None
    stride: int | None = None
    recall: float | None = None  # recall of the exact top 10, at build time
    measured_with: str | None = None  # "queries" or "passages"
    store: str | None = None
    owner: str | None = None
    computed: dict[str, Any] | None = None  # how, where documents were not encoded in float32: {"runtime": "int8", ..}
    mixed: list[dict[str, Any]] | None = None  # the same of other vectors that were added; {} for float32


@dataclass(frozen=True)
class SparseFacts:
    """How words were counted."""

    language: str
    k1: float
    b: float
    expansions: str | None = None  # digest of the passages with their expansions, if these were counted too


@dataclass(frozen=True)
class IndexManifest:
    """All facts about an index before its files are opened."""

    source: str  # name of the data
    content: str  # digest of the passages that it was built from
    dense: DenseFacts | None
    sparse: SparseFacts | None
    segments: tuple[Segment, ...] = ()
    sparse_part: str | None = None
    deleted_part: str | None = None
    deleted: int = 0
    alpha: float | None = None
    files: dict[str, FileRecord] = field(default_factory=dict)

    @property
    def passages(self) -> int:
        """The number of passages that are not deleted."""
        return sum(segment.passages for segment in self.segments) - self.deleted

    def save(self, folder: Path) -> None:
        record = {"kind": KIND, "version": VERSION, **asdict(self)}
        write_json(folder / NAME, {**record, "checksum": digest(canonical(record))})

    @classmethod
    def load(cls, folder: Path) -> IndexManifest:
        """Read a manifest; a damaged one raises a one-line error."""
        path = folder / NAME
        if not folder.is_dir():
            raise bad_input(folder, "no such folder", "make an index with `limbeck index MODEL DATA --out DIR`")
        if not path.exists():
            unfinished = (folder / "work").is_dir()
            problem = "contains an unfinished index" if unfinished else "contains no index"
            remedy = "run `limbeck index` again to resume" if unfinished else "make one with `limbeck index`"
            raise bad_input(folder, problem, remedy)
        remedy = f"remove {folder} and {REMEDY}"
        record = read_json(path, remedy)
        if not isinstance(record, dict) or record.get("kind") != KIND:
            raise bad_input(path, "does not describe an index", "name another folder")
        version = record.get("version")
        if isinstance(version, int) and version > VERSION:
            problem = f"was written by a newer limbeck (format {version}, this one reads {VERSION})"
            raise bad_input(path, problem, f"update limbeck, or {REMEDY}")
        if record.pop("checksum", None) != digest(canonical(record)):
            raise bad_input(path, "is damaged: its checksum does not match its content", remedy)
        try:
            return cls._from_json(record)
        except (KeyError, TypeError, ValueError) as error:
            raise bad_input(path, f"is not a manifest ({error!r})", remedy) from error

    @classmethod
    def _from_json(cls, record: dict[str, Any]) -> IndexManifest:
        values = {name: value for name, value in record.items() if name not in ("kind", "version")}
        values["dense"] = DenseFacts(**values["dense"]) if values["dense"] else None
        values["sparse"] = SparseFacts(**values["sparse"]) if values["sparse"] else None
        values["segments"] = tuple(Segment(**segment) for segment in values["segments"])
        values["files"] = {name: FileRecord(**file) for name, file in values["files"].items()}
        found = cls(**values)
        parts = [found.sparse_part, found.deleted_part, *(segment.name for segment in found.segments)]
        strange = [name for name in found.files if ".." in Path(name).parts or Path(name).is_absolute()]
        if strange or any(part is not None and not _PART.fullmatch(part) for part in parts):
            raise ValueError("a file with an invalid name")
        return found


def is_an_index(path: str | Path) -> bool:
    """Whether a path is the folder of an index, even a damaged one."""
    return (Path(path) / NAME).is_file()
