"""The manifest of a store: its identity and its shards. Shards that are not in the manifest do not count."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from itertools import takewhile
from pathlib import Path
from typing import Any

from limbeck.errors import bad_input
from limbeck.files import digest, read_json, write_json
from limbeck.stores.mapped import FileRecord

VERSION = 1
SHOWN = 4  # maximum number of differences in a message
SHARD_NAME = re.compile(r"\d{6,}-[0-9a-f]{8}")


def canonical(value: Any) -> str:
    """A canonical spelling of a JSON value, independent of the order of keys."""
    return json.dumps(value, sort_keys=True, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


@dataclass(frozen=True)
class Shard:
    """Some rows of a store: a directory of files."""

    name: str
    rows: int
    files: dict[str, FileRecord]
    facts: dict[str, Any] = field(default_factory=dict)  # facts that a store keeps about the shard

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.files.values())

    @classmethod
    def from_json(cls, record: dict[str, Any]) -> Shard:
        files = {str(name): FileRecord(**file) for name, file in record["files"].items()}
        if not SHARD_NAME.fullmatch(record["name"]) or any("/" in name for name in files):
            raise ValueError("a shard with an invalid name")
        return cls(record["name"], int(record["rows"]), files, record["facts"])


@dataclass(frozen=True)
class Manifest:
    """`identity` contains everything that changes the content; `layout` describes how the content is stored."""

    kind: str
    identity: dict[str, Any]
    layout: dict[str, Any]
    shards: tuple[Shard, ...] = ()

    def save(self, path: Path) -> None:
        """Write it atomically: readers see either the old or the new manifest."""
        record = {
            "kind": self.kind,
            "version": VERSION,
            "identity": self.identity,
            "layout": self.layout,
            "shards": [asdict(shard) for shard in self.shards],
        }
        write_json(path, {**record, "checksum": digest(canonical(record))})

    @classmethod
    def load(cls, path: Path, kind: str) -> Manifest:
        """Read a manifest; a damaged one raises a one-line error."""
        if not path.exists():
            raise bad_input(path.parent, f"contains no {kind}", "name another directory")
        remedy = f"remove {path.parent} and run the same command again"
        record = read_json(path, remedy)
        if not isinstance(record, dict) or record.get("kind") != kind:
            found = record.get("kind") if isinstance(record, dict) else type(record).__name__
            raise bad_input(path, f"describes {found!r}, not {kind}", "name another directory")
        if record.get("version") != VERSION:
            problem = f"has version {record.get('version')}, but this limbeck reads version {VERSION}"
            raise bad_input(path, problem, "use the version of limbeck that wrote it, or name another directory")
        if record.pop("checksum", None) != digest(canonical(record)):
            raise bad_input(path, "is damaged: its checksum does not match its content", remedy)
        try:
            shards = tuple(Shard.from_json(shard) for shard in record["shards"])
            return cls(kind, dict(record["identity"]), dict(record["layout"]), shards)
        except (KeyError, TypeError, ValueError) as error:
            raise bad_input(path, f"is not a manifest ({error!r})", remedy) from error


def require_same(
    path: Path, stored: Manifest, wanted: Manifest, remedy: str = "name another directory, or remove this one"
) -> None:
    """Refuse to mix results made with different settings; the error names the differences."""
    differences = [
        *_differences(stored.identity, wanted.identity),
        *_differences(stored.layout, wanted.layout),
    ]
    if differences:
        more = f"; and {len(differences) - SHOWN} more" if len(differences) > SHOWN else ""
        problem = f"was made with other settings: {'; '.join(differences[:SHOWN])}{more}"
        raise bad_input(path, problem, remedy)


def _differences(was: dict[str, Any], now: dict[str, Any], within: str = "") -> Iterator[str]:
    """Every innermost key whose values differ, with both values."""
    for name in sorted(was.keys() | now.keys()):
        one, other = was.get(name), now.get(name)
        if isinstance(one, dict) and isinstance(other, dict):
            yield from _differences(one, other, f"{within}{name}.")
        elif one != other:
            texts = canonical(one), canonical(other)
            start = sum(1 for _ in takewhile(lambda both: both[0] == both[1], zip(*texts, strict=False)))
            yield f"{within}{name} is {_short(texts[0], start)} there and {_short(texts[1], start)} here"


def _short(text: str, start: int) -> str:
    """Some 60 characters, starting shortly before the first difference of two texts."""
    first = max(0, start - 20) if len(text) > 60 else 0
    end = first + 57
    return f"{'...' if first else ''}{text[first:end]}{'...' if end < len(text) else ''}"
